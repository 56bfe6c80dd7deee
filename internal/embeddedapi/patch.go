package embeddedapi

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/embeddedapi/apply"
	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/jsonsize"
)

// Bounds of what a patch costs. The first two are kube-apiserver's.
const (
	maxOperations  = 10_000
	maxCopied      = 3 << 20   // bytes that the copies of a JSON patch add
	maxPatched     = 128 << 20 // operations of a JSON patch by bytes of its document: an operation in a list may move the whole list
	maxComparisons = 16 << 20  // values of a strategic merge patch by those of its document and its own, which are searched for each
)

// maxManaged is how many values an applied configuration may have, and half of what an object may have whose fields have managers: to
// keep these takes the square of their number.
const maxManaged = 10_000

// manageable refuses an object with too many values to be managed. A value takes six bytes at least.
func manageable(o store.Object) error {
	if sized, is := o.(interface{ Size() int }); is && sized.Size() < 6*maxManaged {
		return nil
	}
	bare := o.DeepCopyObject().(store.Object)
	bare.SetManagedFields(nil)
	text, err := json.Marshal(bare)
	if err == nil && jsonsize.Values(text) > 2*maxManaged {
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object that was applied has at most %d values", 2*maxManaged))
	}
	return err
}

// boundCopies bounds what the copies of a JSON patch add, in this process.
func boundCopies() { atomic.StoreInt64(&jsonpatch.AccumulatedCopySizeLimit, maxCopied) }

// patchers apply a patch to a document; kind is a blank object of its type.
var patchers = map[types.PatchType]func(document, patch []byte, kind runtime.Object) ([]byte, error){
	types.StrategicMergePatchType: func(document, patch []byte, kind runtime.Object) ([]byte, error) {
		if n := jsonsize.Values(patch); n*(n+jsonsize.Values(document)) > maxComparisons {
			return nil, apierrors.NewRequestEntityTooLargeError("the patch has too many values")
		}
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
		if len(steps) > maxOperations || len(steps)*len(document) > maxPatched {
			return nil, apierrors.NewRequestEntityTooLargeError("the patch has too many operations")
		}
		document, err = steps.Apply(document)
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return document, nil
	},
}

// patchType is what the body of a patch is.
func (r *request) patchType() (types.PatchType, error) {
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		contentType = r.Header.Get("Content-Type")
	}
	of := types.PatchType(contentType)
	if patchers[of] == nil && (of != types.ApplyYAMLPatchType || r.kind.isView()) {
		return "", unknownPatch()
	}
	return of, nil
}

func (r *request) patch() (int, runtime.Object, error) {
	of, err := r.patchType()
	if err != nil {
		return 0, nil, err
	}
	body, err := r.body()
	if err == nil && of != types.ApplyYAMLPatchType {
		err = isJSON(body)
	} else if err == nil {
		err = affordable(body, runtime.ContentTypeYAML, r.api.blank(r.kind.GroupVersionKind))
	}
	if err != nil {
		return 0, nil, err
	}
	patch := patchers[of]
	if patch == nil {
		return r.apply(body)
	}
	c := r.change()
	c.next = func(old store.Object) (store.Object, error) {
		return r.patched(old, func(document []byte, kind runtime.Object) ([]byte, error) { return patch(document, body, kind) })
	}
	object, err := r.api.update(r.context(), c)
	return http.StatusOK, object, err
}

// isJSON refuses a patch that is no JSON, whether its object is there or not.
func isJSON(patch []byte) error {
	if !json.Valid(patch) {
		return apierrors.NewBadRequest("invalid JSON patch")
	}
	return nil
}

// apply merges an applied configuration, and makes the object where there is none.
func (r *request) apply(configuration []byte) (int, runtime.Object, error) {
	c, code := r.change(), http.StatusOK
	c.applied = true
	if text, err := yaml.YAMLToJSON(configuration); err == nil && jsonsize.Values(text) > maxManaged {
		return 0, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an applied configuration has at most %d values", maxManaged))
	}
	merge := func(live store.Object) (store.Object, error) {
		if err := manageable(live); err != nil {
			return nil, err
		}
		object, err := r.api.managers.Apply(c.writer(), live, configuration, r.query.Get("force") == "true")
		if err != nil {
			return nil, err
		}
		if err := apply.Duplicates(configuration); err != nil {
			if err := r.strict(err); err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", err))
			}
		}
		return object, r.place(object)
	}
	c.next = func(old store.Object) (store.Object, error) { return merge(old) }
	if r.sub == "" {
		c.missing = func() (store.Object, error) {
			object, err := merge(r.api.blank(r.kind.GroupVersionKind))
			if err != nil {
				return nil, err
			}
			code = http.StatusCreated
			return r.api.create(r.context(), r.kind, object, r.dryRun())
		}
	}
	object, err := r.api.update(r.context(), c)
	return code, object, err
}

func unknownPatch() error {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml")
}

func (r *request) patched(old store.Object, patch func([]byte, runtime.Object) ([]byte, error)) (store.Object, error) {
	document, err := json.Marshal(r.kind.served(old))
	if err != nil {
		return nil, err
	}
	object := r.api.blank(r.kind.GroupVersionKind)
	document, err = patch(document, object)
	if _, isStatus := err.(apierrors.APIStatus); isStatus {
		return nil, err
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the patch cannot be applied: " + err.Error())
	}
	if len(document) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	if err := r.decode(document, "", object, r.kind.GroupVersionKind); apierrors.IsRequestEntityTooLargeError(err) {
		return nil, err
	} else if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", utilvalidation.ErrorList{utilvalidation.Invalid(utilvalidation.NewPath("patch"), string(document), err.Error())})
	}
	if err := r.place(object); err != nil {
		return nil, err
	}
	return r.kind.received(object), nil
}
