package outoftree

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// podInfo is an immutable fwk.PodInfo.
type podInfo struct {
	digest                          *nodetable.Pod
	affinity, antiAffinity          []fwk.AffinityTerm
	preferred, preferredAnti        []fwk.WeightedAffinityTerm
	hasAffinity, hasRequiredAgainst bool
}

// newPodInfo wraps a pod. A list with a selector that does not parse is empty, as in
// kube-scheduler's own PodInfo.
func newPodInfo(digest *nodetable.Pod) *podInfo {
	p := &podInfo{digest: digest}
	affinity := digest.Object.Spec.Affinity
	if affinity == nil {
		return p
	}
	p.hasAffinity = affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil
	p.affinity, _ = fwk.GetAffinityTerms(digest.Object, fwk.GetPodAffinityTerms(affinity))
	p.antiAffinity, _ = fwk.GetAffinityTerms(digest.Object, fwk.GetPodAntiAffinityTerms(affinity))
	p.hasRequiredAgainst = len(p.antiAffinity) > 0
	if a := affinity.PodAffinity; a != nil {
		p.preferred, _ = fwk.GetWeightedAffinityTerms(digest.Object, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		p.preferredAnti, _ = fwk.GetWeightedAffinityTerms(digest.Object, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return p
}

// ownPodInfo converts a PodInfo that may be a plugin's own.
func ownPodInfo(info fwk.PodInfo) *podInfo {
	if p, own := info.(*podInfo); own {
		return p
	}
	return podInfoOf(info.GetPod())
}

// podInfoOf digests a pod.
func podInfoOf(pod *v1.Pod) *podInfo { return newPodInfo(nodetable.NewPod(pod)) }

func (p *podInfo) GetPod() *v1.Pod                                       { return p.digest.Object }
func (p *podInfo) GetRequiredAffinityTerms() []fwk.AffinityTerm          { return p.affinity }
func (p *podInfo) GetRequiredAntiAffinityTerms() []fwk.AffinityTerm      { return p.antiAffinity }
func (p *podInfo) GetPreferredAffinityTerms() []fwk.WeightedAffinityTerm { return p.preferred }
func (p *podInfo) GetPreferredAntiAffinityTerms() []fwk.WeightedAffinityTerm {
	return p.preferredAnti
}

func (p *podInfo) CalculateResource() fwk.PodResource {
	var total resources
	total.add(&p.digest.Requests, 1)
	return fwk.PodResource{Resource: &total, Non0CPU: p.digest.Requests.NonZeroCPU, Non0Mem: p.digest.Requests.NonZeroMemory}
}

// resources are in millicores and bytes.
type resources struct {
	cpu, memory, ephemeral int64
	pods                   int
	scalars                map[v1.ResourceName]int64
}

func (r *resources) add(requests *nodetable.Requests, n int64) {
	r.cpu = sum(r.cpu, n*requests.CPU)
	r.memory = sum(r.memory, n*requests.Memory)
	r.ephemeral = sum(r.ephemeral, n*requests.Ephemeral)
	for _, amount := range requests.Extended {
		r.addScalar(v1.ResourceName(amount.Name.Value()), n*amount.Value)
	}
}

// sum is a sum of at most MaxAmount.
func sum(a, b int64) int64 { return min(a+b, nodetable.MaxAmount) }

// exact reports whether no sum is larger than MaxAmount.
func (r *resources) exact() bool {
	most := max(r.cpu, r.memory, r.ephemeral)
	for _, value := range r.scalars {
		most = max(most, value)
	}
	return most < nodetable.MaxAmount
}

func (r *resources) addScalar(name v1.ResourceName, value int64) {
	if r.scalars == nil {
		r.scalars = map[v1.ResourceName]int64{}
	}
	r.scalars[name] = sum(r.scalars[name], value)
}

func (r *resources) GetMilliCPU() int64                            { return r.cpu }
func (r *resources) GetMemory() int64                              { return r.memory }
func (r *resources) GetEphemeralStorage() int64                    { return r.ephemeral }
func (r *resources) GetAllowedPodNumber() int                      { return r.pods }
func (r *resources) GetScalarResources() map[v1.ResourceName]int64 { return r.scalars }

func (r *resources) SetMaxResource(list v1.ResourceList) {
	for name, quantity := range list {
		switch name {
		case v1.ResourceCPU:
			r.cpu = max(r.cpu, quantity.MilliValue())
		case v1.ResourceMemory:
			r.memory = max(r.memory, quantity.Value())
		case v1.ResourceEphemeralStorage:
			r.ephemeral = max(r.ephemeral, quantity.Value())
		case v1.ResourcePods:
		default:
			if more := quantity.Value() - r.scalars[name]; more > 0 {
				r.addScalar(name, more)
			}
		}
	}
}

// queued is a fwk.QueuedPodInfo. It has GetPod, like kube-scheduler's, which the
// published interface lacks.
type queued struct{ framework.Queued }

func (q queued) GetPod() *v1.Pod                           { return q.Pod.Object }
func (q queued) Type() fwk.EntityKeyType                   { return fwk.PodKeyType }
func (q queued) GetPriority() int32                        { return q.Pod.Priority }
func (q queued) GetTimestamp() time.Time                   { return q.Timestamp }
func (q queued) GetAttempts() int                          { return q.Attempts }
func (q queued) GetBackoffExpiration() time.Time           { return q.Backoff }
func (q queued) GetUnschedulableCount() int                { return q.Unsuccessful }
func (q queued) GetConsecutiveErrorsCount() int            { return q.Errors }
func (q queued) GetUnschedulablePlugins() sets.Set[string] { return sets.New(q.Unschedulable...) }
func (q queued) GetPendingPlugins() sets.Set[string]       { return sets.New(q.Pending...) }
func (q queued) GetGatingPlugin() string                   { return q.Gate.Plugin }

// GetInitialAttemptTimestamp is nil before the first attempt.
func (q queued) GetInitialAttemptTimestamp() *time.Time {
	if q.FirstAttempt.IsZero() {
		return nil
	}
	return &q.FirstAttempt
}

// GetGatingPluginEvents is nil: the queue keeps its own cache.
func (q queued) GetGatingPluginEvents() []fwk.ClusterEvent { return nil }
