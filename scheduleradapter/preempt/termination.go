package preempt

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// TerminationTimeout is how long a victim may run after its grace period before it
// is overdue.
const TerminationTimeout = time.Minute

// TerminationDeadline is the end of the grace period of a pod. For a pod that is
// not terminating, the grace period starts now.
func TerminationDeadline(pod *nodetable.Pod, now time.Time) time.Time {
	if at := pod.Object.DeletionTimestamp; at != nil {
		return at.Time
	}
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if asked := pod.Object.Spec.TerminationGracePeriodSeconds; asked != nil {
		grace = *asked
	}
	return now.Add(time.Duration(grace) * time.Second)
}

// Overdue reports whether a pod still runs after its grace period and
// TerminationTimeout. Preemption does not select its node.
func Overdue(pod *nodetable.Pod, now time.Time) bool {
	return pod.Terminating && !now.Before(TerminationDeadline(pod, now).Add(TerminationTimeout))
}
