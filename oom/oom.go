// Package oom computes the oom_score_adj of each container of a pod, so that the
// kernel's OOM killer chooses the same victims as Kubernetes. The rules are the
// kubelet's. It reads and writes no process; oom/apply does.
package oom

import (
	"math/bits"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/evictd/evictd/internal/podspec"
)

// Fixed scores. The daemons' score is for the node's own agents, which set it on
// themselves (kubelet --oom-score-adj, kube-proxy --oom-score-adj); no pod gets it.
const (
	DaemonScoreAdj     = -999
	GuaranteedScoreAdj = -997 // also node-critical pods of any class
	BestEffortScoreAdj = 1000
)

// A Burstable container is never as safe as a Guaranteed one at its own memory
// size, and never as exposed as a BestEffort one.
const (
	burstableMin = 1000 + GuaranteedScoreAdj
	burstableMax = BestEffortScoreAdj - 1
)

// ContainerScore is the oom_score_adj of one container.
type ContainerScore struct {
	Name     string
	QOS      v1.PodQOSClass // the pod's
	ScoreAdj int            // for oom_score_adj, see proc_pid_oom_score_adj(5)
}

// Scores lists the containers of a pod in the order of the manifest, init containers
// first and ephemeral containers last. The capacity is the node's memory in bytes and
// must be positive. Requests that an API server defaults from limits are included.
func Scores(pod *v1.Pod, memoryCapacity int64) []ContainerScore {
	pod = podspec.WithDefaultRequests(pod)
	p := policy{pod: pod, class: podspec.QOSClass(pod), capacity: memoryCapacity}
	if resource.IsPodLevelRequestsSet(pod) {
		p.share = unclaimedShare(pod)
	}
	spec := &pod.Spec
	scores := make([]ContainerScore, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		scores = append(scores, p.score(&spec.InitContainers[i]))
	}
	for i := range spec.Containers {
		scores = append(scores, p.score(&spec.Containers[i]))
	}
	for i := range spec.EphemeralContainers {
		scores = append(scores, p.score((*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)))
	}
	return scores
}

type policy struct {
	pod      *v1.Pod
	class    v1.PodQOSClass
	capacity int64 // bytes
	share    int64 // of each container in what only the pod as a whole requests, bytes
}

func (p *policy) score(c *v1.Container) ContainerScore {
	return ContainerScore{Name: c.Name, QOS: p.class, ScoreAdj: p.scoreAdj(c)}
}

func (p *policy) scoreAdj(c *v1.Container) int {
	switch {
	case isNodeCritical(p.pod), p.class == v1.PodQOSGuaranteed:
		return GuaranteedScoreAdj
	case p.class == v1.PodQOSBestEffort:
		return BestEffortScoreAdj
	}
	adj := p.burstable(memoryRequest(c))
	if isSidecar(c) && len(p.pod.Spec.Containers) > 0 {
		// A sidecar must not be killed before the container it serves.
		adj = min(adj, p.burstable(smallestMemoryRequest(p.pod.Spec.Containers)))
	}
	return min(max(adj, burstableMin), burstableMax)
}

// burstable is 1000 less the request's share of the node in thousandths, in
// integer arithmetic and before the bounds: 1000 - 1000*request/capacity.
func (p *policy) burstable(request int64) int {
	claimed := uint64(request) + uint64(p.share)
	if claimed >= uint64(p.capacity) {
		return 0
	}
	high, low := bits.Mul64(1000, claimed)
	thousandths, _ := bits.Div64(high, low, uint64(p.capacity))
	return 1000 - int(thousandths)
}

// unclaimedShare divides what the pod requests above its containers' requests
// evenly among them, init containers included (KEP-2837).
func unclaimedShare(pod *v1.Pod) int64 {
	containers := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	together := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
	unclaimed := podspec.Amount(*pod.Spec.Resources.Requests.Memory(), 0) - podspec.Amount(*together.Memory(), 0)
	if containers == 0 || unclaimed <= 0 {
		return 0
	}
	return unclaimed / containers
}

func smallestMemoryRequest(containers []v1.Container) int64 {
	smallest := memoryRequest(&containers[0])
	for i := range containers[1:] {
		smallest = min(smallest, memoryRequest(&containers[i+1]))
	}
	return smallest
}

func memoryRequest(c *v1.Container) int64 { return max(0, c.Resources.Requests.Memory().Value()) }

func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// isNodeCritical holds for static, mirror and system-critical pods, the ones
// that are never evicted, of the node-critical class.
func isNodeCritical(pod *v1.Pod) bool {
	return pod.Spec.PriorityClassName == podspec.SystemNodeCritical && podspec.IsCritical(pod)
}
