// Package openapi describes kinds of Kubernetes' API as OpenAPI 2 and 3 documents,
// by reflection over their Go types and the documentation these carry. It is what
// kubectl explain and apply need, and no more.
package openapi

import (
	"encoding/json"
	"mime"
	"reflect"
	"strings"
	"sync"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is one resource to describe.
type Resource struct {
	schema.GroupVersionKind
	Name, List string // plural, and the kind of a list of them
	Namespaced bool
	Object     any // pointer to the kind's Go type
}

// Models are the documents about some resources, each made when it is first
// asked for.
type Models struct {
	resources []Resource
	v2        func() ([]byte, error)
	mu        sync.Mutex
	v3        map[string][]byte
}

// New describes resources.
func New(resources []Resource) *Models {
	m := &Models{resources: resources, v3: map[string][]byte{}}
	m.v2 = sync.OnceValues(m.protobuf)
	return m
}

const protobufV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

// Document returns the document of a name below /openapi/ and its media type, nil
// where there is none: "v2", "v3", or "v3/" and the path of a group and version.
func (m *Models) Document(name, accept string) (document []byte, contentType string, err error) {
	switch version, path, _ := strings.Cut(name, "/"); {
	case name == "v2" && strings.Contains(accept, "proto-openapi.spec.v2"):
		document, err = m.v2()
		return document, protobufV2, err
	case name == "v2":
		document, err = json.Marshal(m.swagger())
	case !allowsJSON(accept):
		return nil, "", apierrors.NewGenericServerResponse(406, "get", schema.GroupResource{}, "", "only application/json is served", 0, true)
	case name == "v3":
		document, err = json.Marshal(m.index())
	case version == "v3":
		document, err = m.groupVersion(path)
	}
	return document, "application/json", err
}

func allowsJSON(accept string) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		name, _, err := mime.ParseMediaType(clause)
		if accept == "" || err == nil && (name == "application/json" || name == "application/*" || name == "*/*") {
			return true
		}
	}
	return false
}

type object = map[string]any

func (m *Models) protobuf() ([]byte, error) {
	text, err := json.Marshal(m.swagger())
	if err != nil {
		return nil, err
	}
	document, err := openapi_v2.ParseDocument(text)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(document)
}

func (m *Models) swagger() object {
	s := schemas{prefix: "#/definitions/", all: object{}}
	paths := object{}
	for _, r := range m.resources {
		s.addResource(r)
		r.addPaths(paths, func(name string) object {
			return object{"name": name, "in": "query", "type": "string", "uniqueItems": true}
		})
	}
	return object{"swagger": "2.0", "info": info, "paths": paths, "definitions": s.all}
}

var info = object{"title": "Kubernetes", "version": "v1.37.2"}

func (r Resource) root() string {
	if r.Group == "" {
		return "api/" + r.Version
	}
	return "apis/" + r.Group + "/" + r.Version
}

func (m *Models) index() object {
	paths := object{}
	for _, r := range m.resources {
		paths[r.root()] = object{"serverRelativeURL": "/openapi/v3/" + r.root()}
	}
	return object{"paths": paths}
}

func (m *Models) groupVersion(root string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if document := m.v3[root]; document != nil {
		return document, nil
	}
	s := schemas{prefix: "#/components/schemas/", all: object{}, wrap: true}
	paths := object{}
	for _, r := range m.resources {
		if r.root() != root {
			continue
		}
		s.addResource(r)
		r.addPaths(paths, func(name string) object {
			return object{"name": name, "in": "query", "schema": object{"type": "string", "uniqueItems": true}}
		})
	}
	if len(paths) == 0 {
		return nil, nil
	}
	document, err := json.Marshal(object{"openapi": "3.0.0", "info": info, "paths": paths, "components": object{"schemas": s.all}})
	m.v3[root] = document
	return document, err
}

// addPaths adds what clients look up there: which kind a path is about and which
// parameters a patch takes.
func (r Resource) addPaths(paths object, parameter func(string) object) {
	at := "/" + r.root() + "/"
	if r.Namespaced {
		at += "namespaces/{namespace}/"
	}
	operation := func(action string, parameters ...string) object {
		list := []object{}
		for _, name := range parameters {
			list = append(list, parameter(name))
		}
		return object{"responses": object{"200": object{"description": "OK"}}, "parameters": list,
			"x-kubernetes-action": action, "x-kubernetes-group-version-kind": r.gvk(r.Kind)}
	}
	paths[at+r.Name] = object{"get": operation("list", "labelSelector", "fieldSelector"), "post": operation("post", "dryRun", "fieldValidation")}
	paths[at+r.Name+"/{name}"] = object{
		"get": operation("get"), "put": operation("put", "dryRun", "fieldValidation"),
		"patch": operation("patch", "dryRun", "fieldManager", "fieldValidation"), "delete": operation("delete", "dryRun", "gracePeriodSeconds"),
	}
	if r.Namespaced {
		paths["/"+r.root()+"/"+r.Name] = object{"get": operation("list", "labelSelector", "fieldSelector")}
	}
}

func (r Resource) gvk(kind string) object {
	return object{"group": r.Group, "version": r.Version, "kind": kind}
}

// schemas are the types reached so far, by name.
type schemas struct {
	prefix string
	all    object
	wrap   bool // OpenAPI 3: a reference that is described stands in allOf
}

func (s schemas) addResource(r Resource) {
	t := reflect.TypeOf(r.Object).Elem()
	s.reference(t)
	s.all[modelName(t)].(object)["x-kubernetes-group-version-kind"] = []object{r.gvk(r.Kind)}
	s.all[modelName(t)+"List"] = object{"type": "object", "x-kubernetes-group-version-kind": []object{r.gvk(r.List)}, "properties": object{
		"apiVersion": object{"type": "string"}, "kind": object{"type": "string"},
		"metadata": object{"type": "object"}, "items": object{"type": "array", "items": s.reference(t)},
	}}
}

// modelName is what Kubernetes calls a type, empty where it has no name.
func modelName(t reflect.Type) string {
	if named, ok := reflect.Zero(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	return ""
}
