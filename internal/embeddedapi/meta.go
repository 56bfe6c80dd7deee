package embeddedapi

import (
	"encoding/json"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	document := r.discovery(path)
	if document != nil {
		r.answer(http.StatusOK, document)
	}
	return document != nil, nil
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

// schemas are the documents of the fields of all kinds.
func (a *API) schemas() (all []openapi.Resource) {
	for _, k := range a.kinds {
		object, list := a.blank(k.GroupVersionKind), k.GroupVersion().WithKind(k.Kind+"List")
		all = append(all, openapi.Resource{GroupVersionKind: k.GroupVersionKind, Name: k.resource, Namespaced: k.namespaced, Object: object, List: list.Kind})
	}
	return all
}
