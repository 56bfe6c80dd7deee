package runner

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/stats"
)

// Bounds and units of CPU shares (kubelet, pkg/kubelet/cm/helpers_linux.go).
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
	minQuota     = 1000 // microseconds in 100 ms
)

func shares(milliCPU int64) stats.Amount {
	return stats.Known(min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares))
}

// quota is unlimited for no CPU at all.
func quota(milliCPU int64) stats.Amount {
	if milliCPU == 0 {
		return stats.Amount{}
	}
	return stats.Known(max(milliCPU*100, minQuota))
}

// podLimits bounds a pod's group as the kubelet does (ResourceConfigForPod): the
// pod's requests, limits and overhead together.
func podLimits(pod *v1.Pod) cgroup.Limits {
	if podspec.QOSClass(pod) == v1.PodQOSBestEffort {
		return cgroup.Limits{CPUShares: stats.Known(minShares)}
	}
	limits := resource.PodLimits(pod, resource.PodResourcesOptions{})
	l := cgroup.Limits{CPUShares: shares(cpuRequest(pod))}
	if limited(pod, v1.ResourceCPU) {
		l.CPUQuota = quota(limits.Cpu().MilliValue())
	}
	if limited(pod, v1.ResourceMemory) {
		l.Memory = stats.Known(limits.Memory().Value())
	}
	return l
}

// limited says whether the pod itself, or every container of it, limits a
// resource.
func limited(pod *v1.Pod, name v1.ResourceName) bool {
	sets := func(of *v1.ResourceRequirements) bool { return !of.Limits.Name(name, apiresource.DecimalSI).IsZero() }
	if pod.Spec.Resources != nil && sets(pod.Spec.Resources) {
		return true
	}
	unlimited := func(c v1.Container) bool { return !sets(&c.Resources) }
	return !slices.ContainsFunc(pod.Spec.Containers, unlimited) && !slices.ContainsFunc(pod.Spec.InitContainers, unlimited)
}

// cpuRequest is in thousandths of a CPU, overhead included.
func cpuRequest(pod *v1.Pod) int64 {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	return requests.Cpu().MilliValue()
}

// containerLimits bounds a container's group. One that limits its CPU and requests
// none requests what it is limited to.
func containerLimits(c *v1.Container) cgroup.Limits {
	request, limit := c.Resources.Requests.Cpu(), c.Resources.Limits.Cpu()
	if request.IsZero() {
		request = limit
	}
	l := cgroup.Limits{CPUShares: shares(request.MilliValue()), CPUQuota: quota(limit.MilliValue())}
	if memory := c.Resources.Limits.Memory(); !memory.IsZero() {
		l.Memory = stats.Known(memory.Value())
	}
	return l
}
