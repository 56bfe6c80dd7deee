package admission

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// qosClass is the quality-of-service class that the API server gives a pod with
// completed requests. Only cpu and memory count; pod-level resources, where set,
// stand for those of all containers.
func qosClass(pod *v1.Pod) v1.PodQOSClass {
	wholePod := resourcehelper.IsPodLevelResourcesSet(pod)
	claims, guaranteed := false, true
	for r := range requirements(&pod.Spec) {
		if wholePod && r != pod.Spec.Resources {
			continue
		}
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
