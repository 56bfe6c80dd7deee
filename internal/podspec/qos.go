package podspec

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// QOSClass is the class in the pod's status. Where that has none, it is the class that an
// API server would set (ComputePodQOS of k8s.io/kubernetes/pkg/apis/core/v1/helper/qos),
// with defaulted requests.
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return ComputeQOSClass(WithDefaultRequests(pod))
}

// ComputeQOSClass is the class by the requests and limits of cpu and memory, as they are;
// pod-level resources, where set, stand for those of all containers. It ignores the status.
func ComputeQOSClass(pod *v1.Pod) v1.PodQOSClass {
	claims, guaranteed := false, true
	for r := range qosResources(pod) {
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
	}
	return v1.PodQOSBurstable
}

// qosResources yields what decides the class. Ephemeral containers cannot have resources.
func qosResources(pod *v1.Pod) iter.Seq[*v1.ResourceRequirements] {
	if resource.IsPodLevelResourcesSet(pod) {
		return func(yield func(*v1.ResourceRequirements) bool) { yield(pod.Spec.Resources) }
	}
	return containerResources(&pod.Spec)
}

// containerResources yields the resources of init containers and containers.
func containerResources(spec *v1.PodSpec) iter.Seq[*v1.ResourceRequirements] {
	return func(yield func(*v1.ResourceRequirements) bool) {
		for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
			for i := range containers {
				if !yield(&containers[i].Resources) {
					return
				}
			}
		}
	}
}
