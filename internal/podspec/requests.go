package podspec

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// SetDefaultRequests adds the requests that an API server would default: a container's
// missing request is its limit. Of a pod with pod-level resources a missing request of cpu or
// memory is the sum of its containers', or else its own limit, and a missing limit the sum of its
// containers', where all have one, but not below the request (DefaultPodLevelResources of
// k8s.io/kubernetes/pkg/api/pod).
func SetDefaultRequests(pod *v1.Pod) {
	for r := range containerResources(&pod.Spec) {
		complete(&r.Requests, r.Limits)
	}
	if !hasOwnResources(pod) {
		return
	}
	own := pod.Spec.Resources
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(sum, func(name v1.ResourceName, _ resource.Quantity) bool { return !slices.Contains(overcommitted, name) })
	complete(&own.Requests, sum)
	for name, limit := range own.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			complete(&own.Requests, v1.ResourceList{name: limit})
		}
	}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range overcommitted {
		request, requested := own.Requests[name]
		limit := limits[name]
		if !requested || !limited(&pod.Spec, name) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		complete(&own.Limits, v1.ResourceList{name: limit})
	}
}

// overcommitted are the resources that may be requested below their limit.
var overcommitted = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// hasOwnResources says whether the pod has pod-level resources.
func hasOwnResources(pod *v1.Pod) bool {
	own := pod.Spec.Resources
	return own != nil && len(own.Requests)+len(own.Limits) > 0
}

// limited says whether all containers have a limit of a resource.
func limited(spec *v1.PodSpec, name v1.ResourceName) bool {
	for r := range containerResources(spec) {
		if _, is := r.Limits[name]; !is {
			return false
		}
	}
	return true
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
	if !hasOwnResources(pod) {
		return false
	}
	always, r := v1.ResourceList{v1.ResourceCPU: {}, v1.ResourceMemory: {}}, pod.Spec.Resources
	return misses(r.Requests, always) || misses(r.Limits, always) || misses(r.Requests, r.Limits)
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
