package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/evictd/evictd/internal/podspec"
)

// Matches says whether a quota counts an object, by its scopes. Only pods have scopes.
func Matches(q *v1.ResourceQuota, object any) bool {
	pod, isPod := object.(*v1.Pod)
	for _, scope := range q.Spec.Scopes {
		if !isPod || !inScope(pod, v1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: v1.ScopeSelectorOpExists}) {
			return false
		}
	}
	if q.Spec.ScopeSelector != nil {
		for _, required := range q.Spec.ScopeSelector.MatchExpressions {
			if !isPod || !inScope(pod, required) {
				return false
			}
		}
	}
	return true
}

func inScope(pod *v1.Pod, required v1.ScopedResourceSelectorRequirement) bool {
	terminating := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch required.ScopeName {
	case v1.ResourceQuotaScopeTerminating:
		return terminating
	case v1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case v1.ResourceQuotaScopeBestEffort:
		return podspec.ComputeQOSClass(pod) == v1.PodQOSBestEffort
	case v1.ResourceQuotaScopeNotBestEffort:
		return podspec.ComputeQOSClass(pod) != v1.PodQOSBestEffort
	case v1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return slices.ContainsFunc(affinityTerms(pod.Spec.Affinity), func(t v1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
	case v1.ResourceQuotaScopePriorityClass:
		has := labels.Set{}
		if pod.Spec.PriorityClassName != "" {
			has["class"] = pod.Spec.PriorityClassName
		}
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "class", Operator: metav1.LabelSelectorOperator(required.Operator), Values: required.Values}}})
		return err == nil && selector.Matches(has)
	}
	return false
}

func affinityTerms(affinity *v1.Affinity) (terms []v1.PodAffinityTerm) {
	if affinity == nil {
		return nil
	}
	add := func(required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, weighted := range preferred {
			terms = append(terms, weighted.PodAffinityTerm)
		}
	}
	if a := affinity.PodAffinity; a != nil {
		add(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		add(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return terms
}

// Add adds the resources of more that a quota has a limit of.
func Add(used, more, hard v1.ResourceList) {
	for name, amount := range more {
		if _, limited := hard[name]; limited {
			sum := used[name].DeepCopy()
			sum.Add(amount)
			used[name] = sum
		}
	}
}

// Increase is what next uses more than before.
func Increase(next, before v1.ResourceList) v1.ResourceList {
	more := v1.ResourceList{}
	for name, amount := range next {
		amount = amount.DeepCopy()
		amount.Sub(before[name])
		if amount.Sign() > 0 {
			more[name] = amount
		}
	}
	return more
}

// Exceeded is the error where a quota of which used is used does not have more left.
func Exceeded(q *v1.ResourceQuota, used, more v1.ResourceList) error {
	requested, present, limited := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for name, hard := range q.Spec.Hard {
		amount := more[name]
		sum := used[name].DeepCopy()
		sum.Add(amount)
		if amount.Sign() > 0 && sum.Cmp(hard) > 0 {
			requested[name], present[name], limited[name] = amount, used[name], hard
		}
	}
	if len(requested) == 0 {
		return nil
	}
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name, text(requested), text(present), text(limited))
}

func text(list v1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount := list[name]
		parts = append(parts, string(name)+"="+amount.String())
	}
	return strings.Join(parts, ",")
}

// mustSpecify are the resources that each container of a pod specifies where a quota limits them.
var mustSpecify = []v1.ResourceName{v1.ResourceCPU, v1.ResourceLimitsCPU, v1.ResourceLimitsMemory, v1.ResourceMemory, v1.ResourceRequestsCPU, v1.ResourceRequestsMemory}

// Unspecified is the error where a container of a pod leaves out a resource that the quota limits.
func Unspecified(q *v1.ResourceQuota, object any) error {
	pod, isPod := object.(*v1.Pod)
	if !isPod || resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	var missing []string
	for _, name := range mustSpecify {
		if _, limited := q.Spec.Hard[name]; !limited {
			continue
		}
		var without []string
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			has := v1.ResourceList{}
			addCompute(has, c.Resources.Requests, c.Resources.Limits)
			if _, specified := has[name]; !specified {
				without = append(without, c.Name)
			}
		}
		if len(without) > 0 {
			slices.Sort(without)
			missing = append(missing, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(without), ",")))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("failed quota: %s: must specify %s", q.Name, strings.Join(missing, "; "))
}
