package kube

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxFlips is how often another program may change a condition in flipWindow before
	// evictd stops writing conditions.
	maxFlips   = 3
	flipWindow = 10 * time.Minute
)

// conflictDetector detects another program that writes the node's conditions.
type conflictDetector struct {
	// written are the statuses that evictd has sent, and shown those that the Node had
	// last.
	written, shown map[v1.NodeConditionType]v1.ConditionStatus
	flips          []time.Time
	detected       bool
}

func newConflictDetector() conflictDetector {
	return conflictDetector{written: map[v1.NodeConditionType]v1.ConditionStatus{}, shown: map[v1.NodeConditionType]v1.ConditionStatus{}}
}

// recordWrite stores the conditions that are about to be written.
func (r *conflictDetector) recordWrite(conditions []v1.NodeCondition) {
	for _, c := range conditions {
		r.written[c.Type] = c.Status
	}
}

// observe compares the Node with what evictd wrote. A condition that had evictd's
// status and now has another was changed by another program. Unknown is left out: the
// node lifecycle controller sets it. It returns a message once, when evictd must stop
// writing conditions.
func (r *conflictDetector) observe(has []v1.NodeCondition, now time.Time) (message string) {
	for _, is := range has {
		wrote, ours := r.written[is.Type]
		changed := ours && r.shown[is.Type] == wrote && is.Status != wrote && is.Status != v1.ConditionUnknown
		r.shown[is.Type] = is.Status
		if !changed || r.detected {
			continue
		}
		r.flips = append(r.flips, now)
		for now.Sub(r.flips[0]) > flipWindow {
			r.flips = r.flips[1:]
		}
		if len(r.flips) >= maxFlips {
			r.detected = true
			message = fmt.Sprintf("%s was turned to %s (%s) against evictd, turn %d within %v: another eviction manager runs here; choose mode backstop or takeover",
				is.Type, is.Status, is.Reason, len(r.flips), flipWindow)
		}
	}
	return message
}
