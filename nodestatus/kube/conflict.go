package kube

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxFlips is how often a condition may be turned against us in flipWindow
	// before it is left alone.
	maxFlips   = 3
	flipWindow = 10 * time.Minute
)

// conflictDetector notices somebody else who writes our conditions.
type conflictDetector struct {
	// written are the statuses that we wrote last, or are writing, and shown
	// those that the Node has shown.
	written, shown map[v1.NodeConditionType]v1.ConditionStatus
	flips          []time.Time
	detected       bool
}

func newConflictDetector() conflictDetector {
	return conflictDetector{written: map[v1.NodeConditionType]v1.ConditionStatus{}, shown: map[v1.NodeConditionType]v1.ConditionStatus{}}
}

// recordWrite says what we are about to write.
func (r *conflictDetector) recordWrite(conditions []v1.NodeCondition) {
	for _, c := range conditions {
		r.written[c.Type] = c.Status
	}
}

// observe compares the Node with what we wrote: a condition that has shown it and
// shows something else was turned by somebody. It returns what to tell when the
// conditions are to be left alone from now on, once. A node controller that makes
// conditions Unknown because it has not heard of us is no rival.
func (r *conflictDetector) observe(has []v1.NodeCondition, now time.Time) (told string) {
	for _, is := range has {
		wrote, ours := r.written[is.Type]
		turned := ours && r.shown[is.Type] == wrote && is.Status != wrote && is.Status != v1.ConditionUnknown
		r.shown[is.Type] = is.Status
		if !turned || r.detected {
			continue
		}
		r.flips = append(r.flips, now)
		for now.Sub(r.flips[0]) > flipWindow {
			r.flips = r.flips[1:]
		}
		if len(r.flips) >= maxFlips {
			r.detected = true
			told = fmt.Sprintf("%s was turned to %s (%s) against evictd, turn %d within %v: another eviction manager runs here; choose mode backstop or takeover",
				is.Type, is.Status, is.Reason, len(r.flips), flipWindow)
		}
	}
	return told
}
