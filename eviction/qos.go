package eviction

import v1 "k8s.io/api/core/v1"

// QOSClass is the class in the pod's status, else the one its requests and
// limits of cpu and memory make, by the API server's rule: pod-level resources
// count instead of the containers' where they are set.
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	demands := make([]v1.ResourceRequirements, 0, len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			demands = append(demands, containers[i].Resources)
		}
	}
	if r := pod.Spec.Resources; r != nil && (len(r.Requests) > 0 || len(r.Limits) > 0) {
		demands = []v1.ResourceRequirements{*r}
	}
	bestEffort, guaranteed := true, true
	for _, d := range demands {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := d.Requests[name], d.Limits[name]
			if request.IsZero() {
				request = limit
			}
			bestEffort = bestEffort && request.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
		}
	}
	switch {
	case bestEffort:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
