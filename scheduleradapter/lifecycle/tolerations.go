// Package lifecycle decides what kube-controller-manager's node lifecycle and taint
// eviction controllers decide: conditions of nodes without heartbeats, taints that
// follow from conditions, and evictions for NoExecute taints. Package
// lifecycle/kube writes them to an API server.
package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// EvictionTime is when a pod on a node is evicted, and for which taint; nil: it
// tolerates all. since is when the time of a taint starts for the pod. As in
// Kubernetes, a pod without a matching toleration is evicted at once; otherwise the
// first matching toleration has the tolerationSeconds.
func EvictionTime(tolerations []v1.Toleration, taints []v1.Taint, since func(*v1.Taint) time.Time) (at time.Time, first *v1.Taint) {
	for i := range taints {
		taint := &taints[i]
		if taint.Effect != v1.TaintEffectNoExecute {
			continue
		}
		period, bounded := tolerationPeriod(tolerations, taint)
		if eviction := since(taint).Add(period); bounded && (first == nil || eviction.Before(at)) {
			at, first = eviction, taint
		}
	}
	return at, first
}

// tolerationPeriod is how long a pod tolerates a taint; false: for ever.
func tolerationPeriod(tolerations []v1.Toleration, taint *v1.Taint) (period time.Duration, bounded bool) {
	digest := nodetable.NewTaint(taint)
	for i := range tolerations {
		single := nodetable.NewTolerations(tolerations[i : i+1])
		if !single.Tolerate(digest) {
			continue
		}
		seconds := tolerations[i].TolerationSeconds
		if seconds == nil {
			return 0, false
		}
		return time.Duration(max(*seconds, 0)) * time.Second, true
	}
	return 0, true
}
