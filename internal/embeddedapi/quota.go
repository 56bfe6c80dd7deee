package embeddedapi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	content "k8s.io/apimachinery/pkg/util/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/embeddedapi/quota"
	"github.com/evictd/evictd/internal/embeddedapi/store"
	podvalidation "github.com/evictd/evictd/internal/embeddedapi/validation"
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
	if !k.namespaced || k.wire != nil || old != nil && !slices.Contains([]string{"Pod", "Service", "PersistentVolumeClaim"}, k.Kind) {
		return put()
	}
	if old == nil || k.Kind == "PersistentVolumeClaim" || sub == resize {
		for _, limits := range a.limitRanges(object.GetNamespace()) {
			if err := quota.Violation(limits, object); err != nil {
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
	for _, q := range quotas {
		if err := a.withinQuota(k, q, object, old); err != nil {
			return apierrors.NewForbidden(k.groupResource(), object.GetName(), err)
		}
	}
	if err := put(); err != nil {
		return err
	}
	if err := a.computeQuotas(object.GetNamespace()); err != nil {
		a.log.Error("the use of quotas is not computed", "namespace", object.GetNamespace(), "error", err)
	}
	return nil
}

// withinQuota is the error for an object that a quota does not allow.
func (a *API) withinQuota(k *kind, q *v1.ResourceQuota, object, old store.Object) error {
	if !quota.Matches(q, object) {
		return nil
	}
	of, now := k.groupResource().String(), time.Now()
	more := quota.Usage(of, object, now)
	if old == nil {
		if err := quota.Unspecified(q, object); err != nil {
			return err
		}
	} else if quota.Matches(q, old) {
		more = quota.Increase(more, quota.Usage(of, old, now))
	}
	return quota.Exceeded(q, a.used(q), more)
}

// used is what the objects of a namespace use of a quota.
func (a *API) used(q *v1.ResourceQuota) v1.ResourceList {
	used, now := v1.ResourceList{}, time.Now()
	for name := range q.Spec.Hard {
		used[name] = resource.Quantity{Format: resource.DecimalSI}
	}
	for _, k := range a.kinds {
		if !k.namespaced || k.wire != nil {
			continue
		}
		objects, _ := k.table.List(q.Namespace)
		for _, o := range objects {
			if quota.Matches(q, o) {
				quota.Add(used, quota.Usage(k.groupResource().String(), o, now), q.Spec.Hard)
			}
		}
	}
	return used
}

// keepQuotas computes all quotas whenever an object that one may count has changed, until ctx ends.
func (a *API) keepQuotas(ctx context.Context) {
	kinds := []string{"ResourceQuota"}
	for _, k := range a.kinds {
		if k.namespaced && k.wire == nil && k.ttl == 0 && k.Kind != kinds[0] {
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
		_, err := a.update(context.Background(), change{kind: k, key: store.KeyOf(q), internal: true, next: func(old store.Object) (store.Object, error) {
			next := old.(*v1.ResourceQuota).DeepCopy()
			next.Status = v1.ResourceQuotaStatus{Hard: next.Spec.Hard.DeepCopy(), Used: a.used(next)}
			return next, nil
		}})
		if !apierrors.IsNotFound(err) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// admitQuota follows ValidateResourceQuota of Kubernetes' core validation.
func admitQuota(a *API, object, old store.Object) (faults utilvalidation.ErrorList) {
	q, path := object.(*v1.ResourceQuota), utilvalidation.NewPath("spec")
	faults = podvalidation.Quota(&q.Spec)
	if before, ok := old.(*v1.ResourceQuota); ok {
		faults = append(faults, validation.ValidateImmutableField(q.Spec.Scopes, before.Spec.Scopes, path.Child("scopes"))...)
		return faults
	}
	q.Status = v1.ResourceQuotaStatus{}
	return faults
}

// admitLimitRange follows ValidateLimitRange of Kubernetes' core validation.
func admitLimitRange(_ *API, object, _ store.Object) (faults utilvalidation.ErrorList) {
	seen := map[v1.LimitType]bool{}
	for i, item := range object.(*v1.LimitRange).Spec.Limits {
		path := utilvalidation.NewPath("spec", "limits").Index(i)
		if seen[item.Type] {
			faults = append(faults, utilvalidation.Duplicate(path.Child("type"), item.Type))
		}
		seen[item.Type] = true
		faults = append(faults, checkLimitType(path.Child("type"), item.Type)...)
		faults = append(faults, checkLimits(path, item)...)
	}
	return faults
}

func checkLimitType(path *utilvalidation.Path, name v1.LimitType) (faults utilvalidation.ErrorList) {
	for _, fault := range content.IsQualifiedName(string(name)) {
		faults = append(faults, utilvalidation.Invalid(path, name, fault))
	}
	standard := []v1.LimitType{v1.LimitTypePod, v1.LimitTypeContainer, v1.LimitTypePersistentVolumeClaim}
	if len(faults) == 0 && !strings.Contains(string(name), "/") && !slices.Contains(standard, name) {
		faults = append(faults, utilvalidation.Invalid(path, name, "must be a standard limit type or fully qualified"))
	}
	return faults
}

func checkLimits(path *utilvalidation.Path, item v1.LimitRangeItem) (faults utilvalidation.ErrorList) {
	type amounts struct {
		field, name string
		list        v1.ResourceList
	}
	least, most := amounts{"min", "min", item.Min}, amounts{"max", "max", item.Max}
	request, limit := amounts{"defaultRequest", "default request", item.DefaultRequest}, amounts{"default", "default", item.Default}
	// ordered refuses an amount of a that is greater than that of b. The fault is in the field of at.
	ordered := func(a, b, at amounts) {
		for name, low := range admission.InOrder(a.list) {
			if high, has := b.list[name]; has && low.Cmp(high) > 0 {
				value := at.list[name]
				if at.field == "default" {
					value = low
					if b.field == "max" {
						value = high
					}
				}
				words := b.name
				if a.field == "defaultRequest" && b.field == "default" {
					words = "default limit"
				}
				faults = append(faults, utilvalidation.Invalid(path.Child(at.field).Key(string(name)), value.String(),
					a.name+" value "+low.String()+" is greater than "+words+" value "+high.String()))
			}
		}
	}
	if item.Type == v1.LimitTypePod {
		for _, list := range []amounts{limit, request} {
			if len(list.list) > 0 {
				faults = append(faults, utilvalidation.Forbidden(path.Child(list.field), "may not be specified when `type` is 'Pod'"))
			}
		}
		request.list, limit.list = nil, nil
	}
	ordered(least, most, least)
	ordered(least, request, request)
	ordered(request, most, request)
	ordered(request, limit, request)
	ordered(least, limit, limit)
	ordered(limit, most, limit)
	if item.Type == v1.LimitTypePersistentVolumeClaim && item.Min.Storage().IsZero() && item.Max.Storage().IsZero() {
		faults = append(faults, utilvalidation.Required(path.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
	}
	for name, ratio := range admission.InOrder(item.MaxLimitRequestRatio) {
		if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
			faults = append(faults, utilvalidation.Invalid(path.Child("maxLimitRequestRatio").Key(string(name)), ratio.String(), "ratio "+ratio.String()+" is less than 1"))
		}
	}
	return faults
}
