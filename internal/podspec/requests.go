package podspec

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// SetDefaultRequests adds the requests that an API server would default: a container's
// missing request is its limit; a missing request of a pod with pod-level limits is the sum
// of its containers' requests (cpu and memory only), or else its own limit.
func SetDefaultRequests(pod *v1.Pod) {
	for r := range containerResources(&pod.Spec) {
		complete(&r.Requests, r.Limits)
	}
	if own := pod.Spec.Resources; own != nil && len(own.Limits) > 0 {
		sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
		maps.DeleteFunc(sum, func(name v1.ResourceName, _ resource.Quantity) bool {
			return name != v1.ResourceCPU && name != v1.ResourceMemory
		})
		complete(&own.Requests, sum)
		complete(&own.Requests, own.Limits)
	}
}

// WithDefaultRequests is the pod after SetDefaultRequests: the pod itself where no request
// is missing, else a copy.
func WithDefaultRequests(pod *v1.Pod) *v1.Pod {
	if !missesRequests(pod) {
		return pod
	}
	pod = pod.DeepCopy()
	SetDefaultRequests(pod)
	return pod
}

func missesRequests(pod *v1.Pod) bool {
	for r := range containerResources(&pod.Spec) {
		if misses(r.Requests, r.Limits) {
			return true
		}
	}
	r := pod.Spec.Resources
	if r == nil || len(r.Limits) == 0 {
		return false
	}
	always := v1.ResourceList{v1.ResourceCPU: {}, v1.ResourceMemory: {}}
	return misses(r.Requests, always) || misses(r.Requests, r.Limits)
}

func misses(amounts, from v1.ResourceList) bool {
	for name := range from {
		if _, set := amounts[name]; !set {
			return true
		}
	}
	return false
}

// complete adds the amounts that are missing.
func complete(amounts *v1.ResourceList, from v1.ResourceList) {
	for name, q := range from {
		if _, set := (*amounts)[name]; set {
			continue
		}
		if *amounts == nil {
			*amounts = v1.ResourceList{}
		}
		(*amounts)[name] = q.DeepCopy()
	}
}
