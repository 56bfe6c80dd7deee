package embeddedapi

import (
	"encoding/json"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/evictd/evictd/internal/embeddedapi/openapi"
)

// served is the version of Kubernetes whose API this is.
var served = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2+evictd", GoVersion: goruntime.Version(), Compiler: goruntime.Compiler,
	Platform: goruntime.GOOS + "/" + goruntime.GOARCH}

// isPlain says that a path has an encoding of its own.
func isPlain(path string) bool {
	return slices.Contains([]string{"/healthz", "/livez", "/readyz", "/version"}, path) || strings.HasPrefix(path, "/openapi/")
}

// meta answers requests about the API itself.
func (r *request) meta() (served bool, err error) {
	path := strings.TrimRight(r.URL.Path, "/")
	if !isPlain(path) && strings.Count(path, "/") > 3 || path == "" {
		return false, nil
	}
	if r.Method != http.MethodGet && (isPlain(path) || strings.Count(path, "/") < 3) {
		return true, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: path}, r.Method)
	}
	if isPlain(path) {
		return true, r.plain(path)
	}
	document, err := r.discovery(path)
	if document != nil {
		r.answer(http.StatusOK, document)
	}
	return document != nil, err
}

func (r *request) plain(path string) error {
	name, isOpenAPI := strings.CutPrefix(path, "/openapi/")
	if isOpenAPI {
		document, contentType, err := r.api.models.Document(name, r.Header.Get("Accept"))
		if err != nil {
			return err
		}
		if document == nil {
			return failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		}
		return r.send(contentType, document)
	}
	if path != "/version" {
		return r.send("text/plain; charset=utf-8", []byte("ok"))
	}
	document, err := json.Marshal(served)
	if err != nil {
		return err
	}
	return r.send("application/json", document)
}

func (r *request) send(contentType string, document []byte) error {
	r.w.Header().Set("Content-Type", contentType)
	if _, err := r.w.Write(document); err != nil {
		r.api.log.Debug("answer not delivered", "path", r.URL.Path, "error", err)
	}
	return nil
}

// discovery lists groups and resources; nil where the path is another.
func (r *request) discovery(path string) (runtime.Object, error) {
	a, parts := r.api, strings.Split(path[1:], "/")
	switch {
	case path == "/api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}}}, nil
	case path == "/apis":
		return a.groups(), nil
	case parts[0] == "api" && len(parts) == 2:
		return a.resourceList(schema.GroupVersion{Version: parts[1]}), nil
	case parts[0] == "apis" && len(parts) == 3:
		return a.resourceList(schema.GroupVersion{Group: parts[1], Version: parts[2]}), nil
	case parts[0] == "apis" && len(parts) == 2:
		for _, group := range a.groups().Groups {
			if group.Name == parts[1] {
				group.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
				return &group, nil
			}
		}
	}
	return nil, nil
}

// groupVersions are all group versions, the core group first.
func (a *API) groupVersions() (found []schema.GroupVersion) {
	for _, k := range a.kinds {
		if !slices.Contains(found, k.GroupVersion()) {
			found = append(found, k.GroupVersion())
		}
	}
	return found
}

func (a *API) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for _, gv := range a.groupVersions() {
		if gv.Group == "" {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}
	return list
}

// resourceList is a nil object where the group and version do not exist.
func (a *API) resourceList(gv schema.GroupVersion) runtime.Object {
	if !slices.Contains(a.groupVersions(), gv) {
		return nil
	}
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.String()}
	for _, k := range a.kinds {
		if k.GroupVersion() != gv {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.resource, SingularName: k.singular, Namespaced: k.namespaced, Kind: k.Kind, ShortNames: k.short,
			Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		})
		sub := func(name string, gvk schema.GroupVersionKind, verbs ...string) {
			if k.hasSub(name) {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.resource + "/" + name, Namespaced: k.namespaced,
					Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Verbs: verbs})
			}
		}
		sub("status", schema.GroupVersionKind{Kind: k.Kind}, "get", "patch", "update")
		sub("scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"), "get", "patch", "update")
		sub("finalize", schema.GroupVersionKind{Kind: k.Kind}, "update")
		sub("binding", schema.GroupVersionKind{Kind: "Binding"}, "create")
		sub("eviction", policyv1.SchemeGroupVersion.WithKind("Eviction"), "create")
	}
	return list
}

// schemas are the documents of the fields of all kinds.
func (a *API) schemas() (all []openapi.Resource) {
	for _, k := range a.kinds {
		object, list := a.blank(k.GroupVersionKind), k.GroupVersion().WithKind(k.Kind+"List")
		all = append(all, openapi.Resource{GroupVersionKind: k.GroupVersionKind, Name: k.resource, Namespaced: k.namespaced, Object: object, List: list.Kind})
	}
	return all
}
