package preempt

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// TerminationTimeout is how long a victim may still be there when its grace is over.
const TerminationTimeout = time.Minute

// TerminationDeadline is when a pod is to be gone: the end of its grace, which would begin now
// where it is not being deleted.
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

// Overdue says whether a pod is being deleted and has not gone in time: nobody is
// to count on its going.
func Overdue(pod *nodetable.Pod, now time.Time) bool {
	return pod.Terminating && !now.Before(TerminationDeadline(pod, now).Add(TerminationTimeout))
}
