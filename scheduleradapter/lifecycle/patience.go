// Package lifecycle is what becomes of nodes that fall silent and of the pods on
// tainted ones, where no controller manager says so: conditions that turn Unknown,
// taints that follow from conditions, and pods that leave for NoExecute taints. It
// says what should happen when; writing that to an API is lifecycle/kube's.
package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Depart is when a pod has to leave a node, and for which of its taints; nil where
// it may stay. Since is from when on a NoExecute taint counts for the pod. As in
// Kubernetes a taint that no toleration matches ends the stay at once, else the
// first toleration that matches says after how many seconds, or never.
func Depart(tolerations []v1.Toleration, taints []v1.Taint, since func(*v1.Taint) time.Time) (at time.Time, first *v1.Taint) {
	for i := range taints {
		taint := &taints[i]
		if taint.Effect != v1.TaintEffectNoExecute {
			continue
		}
		stay, bounded := patience(tolerations, taint)
		if leave := since(taint).Add(stay); bounded && (first == nil || leave.Before(at)) {
			at, first = leave, taint
		}
	}
	return at, first
}

// patience is how long a pod bears a taint.
func patience(tolerations []v1.Toleration, taint *v1.Taint) (stay time.Duration, bounded bool) {
	digest := nodetable.NewTaint(taint)
	for i := range tolerations {
		one := nodetable.NewTolerations(tolerations[i : i+1])
		if !one.Tolerate(digest) {
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
