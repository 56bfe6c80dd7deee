package embeddedapi

import (
	"encoding/json"
	"mime"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// replicas are the fields of a kind that the subresource scale shows.
type replicas struct {
	wanted   **int32
	now      int32
	selector *metav1.LabelSelector
}

// scales are the kinds with the subresource scale.
var scales = map[string]func(store.Object) replicas{
	"Deployment": func(o store.Object) replicas {
		d := o.(*appsv1.Deployment)
		return replicas{&d.Spec.Replicas, d.Status.Replicas, d.Spec.Selector}
	},
	"ReplicaSet": func(o store.Object) replicas {
		r := o.(*appsv1.ReplicaSet)
		return replicas{&r.Spec.Replicas, r.Status.Replicas, r.Spec.Selector}
	},
	"StatefulSet": func(o store.Object) replicas {
		s := o.(*appsv1.StatefulSet)
		return replicas{&s.Spec.Replicas, s.Status.Replicas, s.Spec.Selector}
	},
	"ReplicationController": func(o store.Object) replicas {
		c := o.(*v1.ReplicationController)
		return replicas{&c.Spec.Replicas, c.Status.Replicas, &metav1.LabelSelector{MatchLabels: c.Spec.Selector}}
	},
}

func (k *kind) scaleOf(o store.Object) *autoscalingv1.Scale {
	r := scales[k.Kind](o)
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp()},
		Spec:       autoscalingv1.ScaleSpec{Replicas: ptr.Deref(*r.wanted, 0)},
		Status:     autoscalingv1.ScaleStatus{Replicas: r.now, Selector: metav1.FormatLabelSelector(r.selector)},
	}
	scale.SetGroupVersionKind(scaleKind)
	return scale
}

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

func (r *request) getScale() (int, runtime.Object, error) {
	object := r.kind.table.Get(r.key())
	if object == nil {
		return 0, nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	return http.StatusOK, r.kind.scaleOf(object), nil
}

func (r *request) putScale() (int, runtime.Object, error) {
	body, err := r.body()
	if err != nil {
		return 0, nil, err
	}
	return r.scale(func([]byte) ([]byte, string, error) { return body, r.Header.Get("Content-Type"), nil })
}

func (r *request) patchScale() (int, runtime.Object, error) {
	contentType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	patch := patchers[types.PatchType(contentType)]
	if patch == nil {
		return 0, nil, unknownPatch()
	}
	body, err := r.body()
	if err == nil {
		err = isJSON(body)
	}
	if err != nil {
		return 0, nil, err
	}
	return r.scale(func(document []byte) ([]byte, string, error) {
		patched, err := patch(document, body, &autoscalingv1.Scale{})
		return patched, "", err
	})
}

// scale sets the replicas of an object from the Scale that change makes of the present one.
func (r *request) scale(make func(document []byte) (changed []byte, contentType string, err error)) (int, runtime.Object, error) {
	next := func(old store.Object) (store.Object, error) {
		document, err := json.Marshal(r.kind.scaleOf(old))
		if err != nil {
			return nil, err
		}
		document, contentType, err := make(document)
		if err != nil {
			return nil, apierrors.NewBadRequest("the patch cannot be applied: " + err.Error())
		}
		scale := &autoscalingv1.Scale{}
		if err := r.decode(document, contentType, scale, scaleKind); err != nil {
			return nil, err
		}
		if err := r.place(scale); err != nil {
			return nil, err
		}
		if scale.Spec.Replicas < 0 {
			return nil, apierrors.NewInvalid(scaleKind.GroupKind(), r.name, utilvalidation.ErrorList{
				utilvalidation.Invalid(utilvalidation.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0")})
		}
		object := old.DeepCopyObject().(store.Object)
		object.SetUID(scale.UID)
		object.SetResourceVersion(scale.ResourceVersion)
		*scales[r.kind.Kind](object).wanted = &scale.Spec.Replicas
		return object, nil
	}
	c := r.change()
	c.next = next
	object, err := r.api.update(r.context(), c)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, r.kind.scaleOf(object), nil
}
