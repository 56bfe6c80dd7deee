package embeddedapi

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/strategy"
)

// limitRanges are those of a namespace, by name.
func (a *API) limitRanges(namespace string) (found []*v1.LimitRange) {
	objects, _ := a.kindOf("LimitRange").table.List(namespace)
	for _, o := range objects {
		found = append(found, o.(*v1.LimitRange))
	}
	return found
}

// quotas are those of a namespace, by name.
func (a *API) quotas(namespace string) (found []*v1.ResourceQuota) {
	objects, _ := a.kindOf("ResourceQuota").table.List(namespace)
	for _, o := range objects {
		found = append(found, o.(*v1.ResourceQuota))
	}
	return found
}

// admitUse stores an object by put if the LimitRanges and ResourceQuotas of its namespace allow it. Old is
// nil for a new object, sub is the subresource that is written. No two objects use the same part of a quota.
func (a *API) admitUse(k *kind, sub string, object, old store.Object, put func() error) error {
	if !k.namespaced || k.isView() || old != nil && !slices.Contains([]string{"Pod", "Service", "PersistentVolumeClaim"}, k.Kind) {
		return put()
	}
	if old == nil || k.Kind == "PersistentVolumeClaim" || sub == resize {
		for _, limits := range a.limitRanges(object.GetNamespace()) {
			if err := strategy.Violation(limits, object); err != nil {
				return apierrors.NewForbidden(k.groupResource(), object.GetName(), err)
			}
		}
	}
	if pod, ok := object.(*v1.Pod); ok && pod.Spec.RuntimeClassName == nil && pod.Spec.Overhead != nil {
		return apierrors.NewForbidden(k.groupResource(), pod.Name, errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
	}
	if sub == resize {
		if err := a.admitResize(k, object.(*v1.Pod), old.(*v1.Pod)); err != nil {
			return err
		}
	}
	quotas := a.quotas(object.GetNamespace())
	if len(quotas) == 0 {
		return put()
	}
	a.using.Lock()
	defer a.using.Unlock()
	if err := a.evaluators.Check(quotas, written(k, sub, object, old)); err != nil {
		return err
	}
	if err := put(); err != nil {
		return err
	}
	if err := a.computeQuotas(object.GetNamespace()); err != nil {
		a.log.Error("the use of quotas is not computed", "namespace", object.GetNamespace(), "error", err)
	}
	return nil
}

// written describes a write to the admission plugin ResourceQuota.
func written(k *kind, sub string, object, old store.Object) admission.Attributes {
	operation, before := admission.Create, runtime.Object(nil)
	if old != nil {
		operation, before = admission.Update, old
	}
	return admission.NewAttributesRecord(object, before, k.GroupVersionKind, object.GetNamespace(), object.GetName(), k.GroupVersion().WithResource(k.resource), sub, operation, nil, false, nil)
}

// counted are the resources whose objects quotas count. Events are none of them, as in kube-apiserver.
func (a *API) counted() (resources []schema.GroupResource) {
	for _, k := range a.kinds {
		if k.namespaced && k.Kind != "Event" {
			resources = append(resources, k.groupResource())
		}
	}
	return resources
}

// objectsOf are the stored objects of a resource in a namespace.
func (a *API) objectsOf(resource schema.GroupResource, namespace string) (found []runtime.Object) {
	for _, k := range a.kinds {
		if k.groupResource() != resource || k.isView() {
			continue
		}
		objects, _ := k.table.List(namespace)
		for _, o := range objects {
			found = append(found, o)
		}
	}
	return found
}

// keepQuotas computes all quotas whenever an object that one may count has changed, until ctx ends.
func (a *API) keepQuotas(ctx context.Context) {
	kinds := []string{"ResourceQuota"}
	for _, k := range a.kinds {
		if k.namespaced && !k.isView() && k.ttl == 0 && k.Kind != kinds[0] {
			kinds = append(kinds, k.Kind)
		}
	}
	a.keep(ctx, kinds, func() error {
		a.using.Lock()
		defer a.using.Unlock()
		return a.computeQuotas("")
	})
}

// computeQuotas updates the status of a namespace's quotas, of all where it is empty.
func (a *API) computeQuotas(namespace string) error {
	k := a.kindOf("ResourceQuota")
	var faults []error
	for _, q := range a.quotas(namespace) {
		used, err := a.evaluators.Used(q)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		_, err = a.update(context.Background(), change{kind: k, key: store.KeyOf(q), internal: true, next: func(old store.Object) (store.Object, error) {
			next := old.(*v1.ResourceQuota).DeepCopy()
			next.Status = v1.ResourceQuotaStatus{Hard: next.Spec.Hard.DeepCopy(), Used: used}
			return next, nil
		}})
		if !apierrors.IsNotFound(err) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}
