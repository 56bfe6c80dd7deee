package embeddedapi

import (
	"encoding/json"
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// maxOperations bounds the operations of a JSON patch, as kube-apiserver does.
const maxOperations = 10_000

// patchers apply a patch to a document; kind is a blank object of its type.
var patchers = map[types.PatchType]func(document, patch []byte, kind runtime.Object) ([]byte, error){
	types.StrategicMergePatchType: func(document, patch []byte, kind runtime.Object) ([]byte, error) {
		return strategicpatch.StrategicMergePatch(document, patch, kind)
	},
	types.MergePatchType: func(document, patch []byte, _ runtime.Object) ([]byte, error) {
		return jsonpatch.MergePatch(document, patch)
	},
	types.JSONPatchType: func(document, patch []byte, _ runtime.Object) ([]byte, error) {
		steps, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		if len(steps) > maxOperations {
			return nil, apierrors.NewRequestEntityTooLargeError("the patch has too many operations")
		}
		return steps.Apply(document)
	},
}

func (r *request) patch() (int, runtime.Object, error) {
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		contentType = r.Header.Get("Content-Type")
	}
	apply := patchers[types.PatchType(contentType)]
	if apply == nil {
		return 0, nil, unknownPatch()
	}
	body, err := r.body()
	if err != nil {
		return 0, nil, err
	}
	next := func(old store.Object) (store.Object, error) {
		return r.patched(old, func(document []byte, kind runtime.Object) ([]byte, error) { return apply(document, body, kind) })
	}
	object, err := r.api.update(r.Context(), change{kind: r.kind, key: r.key(), sub: r.sub, dryRun: r.dryRun(), next: next})
	return http.StatusOK, object, err
}

func unknownPatch() error {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json")
}

func (r *request) patched(old store.Object, apply func([]byte, runtime.Object) ([]byte, error)) (store.Object, error) {
	document, err := json.Marshal(r.kind.served(old))
	if err != nil {
		return nil, err
	}
	object := r.api.blank(r.kind.GroupVersionKind)
	document, err = apply(document, object)
	if _, isStatus := err.(apierrors.APIStatus); isStatus {
		return nil, err
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the patch cannot be applied: " + err.Error())
	}
	if err := r.decode(document, "", object, r.kind.GroupVersionKind); err != nil {
		return nil, err
	}
	if err := r.place(object); err != nil {
		return nil, err
	}
	return r.kind.received(object), nil
}
