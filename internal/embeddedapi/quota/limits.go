package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// setAnnotation says on a pod which resources a LimitRange has set.
const setAnnotation, setPrefix = "kubernetes.io/limit-ranger", "LimitRanger plugin set: "

// SetDefaults sets the requests and limits that the containers of a new pod leave out.
func SetDefaults(limits *v1.LimitRange, pod *v1.Pod) {
	requests, bounds := v1.ResourceList{}, v1.ResourceList{}
	for _, item := range limits.Spec.Limits {
		if item.Type == v1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(bounds, item.Default)
		}
	}
	var set []string
	for _, list := range []struct {
		what       string
		containers []v1.Container
	}{{"container", pod.Spec.Containers}, {"init container", pod.Spec.InitContainers}} {
		for i := range list.containers {
			c := &list.containers[i]
			for _, part := range []struct {
				what     string
				of       *v1.ResourceList
				defaults v1.ResourceList
			}{{"request", &c.Resources.Requests, requests}, {"limit", &c.Resources.Limits, bounds}} {
				if names := complete(part.of, part.defaults); len(names) > 0 {
					set = append(set, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), part.what, list.what, c.Name))
				}
			}
		}
	}
	if len(set) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[setAnnotation] = setPrefix + strings.Join(set, "; ")
	}
}

// UnsetDefaults removes what SetDefaults has set, as its annotation says, and the annotation.
func UnsetDefaults(pod *v1.Pod) {
	said, _ := strings.CutPrefix(pod.Annotations[setAnnotation], setPrefix)
	delete(pod.Annotations, setAnnotation)
	for part := range strings.SplitSeq(said, "; ") {
		names, of, _ := strings.Cut(part, " for ")
		at := strings.LastIndexByte(names, ' ')
		if at < 0 {
			continue
		}
		container := of[strings.LastIndexByte(of, ' ')+1:]
		for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				amounts := list[i].Resources.Requests
				if names[at+1:] == "limit" {
					amounts = list[i].Resources.Limits
				}
				for name := range strings.SplitSeq(names[:at], ", ") {
					if list[i].Name == container {
						delete(amounts, v1.ResourceName(name))
					}
				}
			}
		}
	}
}

// complete adds the amounts that a list leaves out, and returns their names in order.
func complete(list *v1.ResourceList, defaults v1.ResourceList) (names []string) {
	if *list == nil {
		*list = v1.ResourceList{}
	}
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, has := (*list)[name]; !has {
			(*list)[name] = defaults[name].DeepCopy()
			names = append(names, string(name))
		}
	}
	return names
}

// Violation is the error for a new pod or a claim that a LimitRange does not allow.
func Violation(limits *v1.LimitRange, object any) error {
	var faults []error
	for _, item := range limits.Spec.Limits {
		switch o := object.(type) {
		case *v1.Pod:
			if item.Type == v1.LimitTypeContainer {
				for _, c := range slices.Concat(o.Spec.Containers, o.Spec.InitContainers) {
					faults = append(faults, violations(item, c.Resources.Requests, c.Resources.Limits)...)
				}
			}
			if item.Type == v1.LimitTypePod {
				options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
				faults = append(faults, violations(item, resourcehelper.PodRequests(o, options), resourcehelper.PodLimits(o, options))...)
			}
		case *v1.PersistentVolumeClaim:
			if item.Type == v1.LimitTypePersistentVolumeClaim {
				faults = append(faults, ofClaim(item, o.Spec.Resources.Requests)...)
			}
		}
	}
	return utilerrors.NewAggregate(faults)
}

// bound compares an amount with a bound; least says that it is the smallest one allowed.
func bound(least bool, item v1.LimitRangeItem, name v1.ResourceName, amount *resource.Quantity, what string) error {
	list, word := item.Max, "maximum"
	if least {
		list, word = item.Min, "minimum"
	}
	at := list[name]
	intro := fmt.Sprintf("%s %s usage per %s is %s", word, name, item.Type, at.String())
	switch {
	case amount == nil:
		return fmt.Errorf("%s.  No %s is specified", intro, what)
	case least && amount.Cmp(at) < 0 || !least && amount.Cmp(at) > 0:
		return fmt.Errorf("%s, but %s is %s", intro, what, amount.String())
	}
	return nil
}

func violations(item v1.LimitRangeItem, requests, limits v1.ResourceList) (faults []error) {
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		request, limit := find(requests, name), find(limits, name)
		fault := bound(true, item, name, request, "request")
		if fault == nil && limit != nil {
			fault = bound(true, item, name, limit, "limit")
		}
		faults = append(faults, fault)
	}
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		request, limit := find(requests, name), find(limits, name)
		fault := bound(false, item, name, limit, "limit")
		if fault == nil && request != nil {
			fault = bound(false, item, name, request, "request")
		}
		faults = append(faults, fault)
	}
	for _, name := range slices.Sorted(maps.Keys(item.MaxLimitRequestRatio)) {
		faults = append(faults, ratio(item, name, ptr.Deref(find(requests, name), resource.Quantity{}), ptr.Deref(find(limits, name), resource.Quantity{})))
	}
	return slices.DeleteFunc(faults, func(err error) bool { return err == nil })
}

func find(list v1.ResourceList, name v1.ResourceName) *resource.Quantity {
	if amount, has := list[name]; has {
		return &amount
	}
	return nil
}

func ratio(item v1.LimitRangeItem, name v1.ResourceName, request, limit resource.Quantity) error {
	most := item.MaxLimitRequestRatio[name]
	intro := fmt.Sprintf("%s max limit to request ratio per %s is %s", name, item.Type, most.String())
	switch {
	case request.IsZero():
		return errors.New(intro + ", but no request is specified or request is 0")
	case limit.IsZero():
		return errors.New(intro + ", but no limit is specified or limit is 0")
	}
	if of := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); of > most.AsApproximateFloat64() {
		return fmt.Errorf("%s, but provided ratio is %f", intro, of)
	}
	return nil
}

// ofClaim compares the requests of a claim, which has no limits.
func ofClaim(item v1.LimitRangeItem, requests v1.ResourceList) (faults []error) {
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		faults = append(faults, bound(true, item, name, find(requests, name), "request"))
	}
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		faults = append(faults, bound(false, item, name, find(requests, name), "request"))
	}
	return slices.DeleteFunc(faults, func(err error) bool { return err == nil })
}
