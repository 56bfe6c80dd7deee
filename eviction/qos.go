package eviction

import (
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// QOSClass is the pod's quality-of-service class: the one in its status, or the
// one an API server would give it. Only cpu and memory count; pod-level
// resources, where set, replace those of all containers.
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	claims, guaranteed := false, true
	for r := range qosResources(WithDefaultRequests(pod)) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			claims = claims || request.Sign() > 0 || limit.Sign() > 0
			guaranteed = guaranteed && limit.Sign() > 0 && request.Cmp(limit) == 0
		}
	}
	switch {
	case !claims:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}

// qosResources yields what decides the class. Ephemeral containers cannot claim
// resources, so they never do.
func qosResources(pod *v1.Pod) iter.Seq[v1.ResourceRequirements] {
	return func(yield func(v1.ResourceRequirements) bool) {
		if resource.IsPodLevelResourcesSet(pod) {
			yield(*pod.Spec.Resources)
			return
		}
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				if !yield(containers[i].Resources) {
					return
				}
			}
		}
	}
}

// WithDefaultRequests is the pod with the requests an API server would have
// stored: a container's missing request is its limit; a missing request of a pod
// with pod-level limits is what its containers request together, or else its own
// limit. It is the pod itself where nothing is missing, otherwise a copy.
func WithDefaultRequests(pod *v1.Pod) *v1.Pod {
	if !missesRequests(pod) {
		return pod
	}
	pod = pod.DeepCopy()
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Requests = withDefaults(r.Requests, r.Limits)
		}
	}
	if r := pod.Spec.Resources; r != nil && len(r.Limits) > 0 {
		together := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
		for _, defaults := range []v1.ResourceList{together, r.Limits} {
			r.Requests = withDefaults(r.Requests, podLevel(defaults))
		}
	}
	return pod
}

func missesRequests(pod *v1.Pod) bool {
	misses := func(c v1.Container) bool {
		for name := range c.Resources.Limits {
			if _, set := c.Resources.Requests[name]; !set {
				return true
			}
		}
		return false
	}
	if r := pod.Spec.Resources; r != nil && len(r.Limits) > 0 {
		_, cpu := r.Requests[v1.ResourceCPU]
		_, memory := r.Requests[v1.ResourceMemory]
		if !cpu || !memory {
			return true
		}
	}
	return slices.ContainsFunc(pod.Spec.Containers, misses) || slices.ContainsFunc(pod.Spec.InitContainers, misses)
}

// podLevel keeps the resources a pod as a whole can claim. Huge pages are left
// out: their defaults follow rules of their own and nothing here reads them.
func podLevel(list v1.ResourceList) v1.ResourceList {
	kept := v1.ResourceList{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if q, set := list[name]; set {
			kept[name] = q
		}
	}
	return kept
}

func withDefaults(list, defaults v1.ResourceList) v1.ResourceList {
	if len(defaults) == 0 {
		return list
	}
	merged := maps.Clone(defaults)
	maps.Copy(merged, list)
	return merged
}
