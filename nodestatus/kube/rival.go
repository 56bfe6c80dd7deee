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

// rival notices somebody else who writes our conditions.
type rival struct {
	// shown are the statuses that the Node has shown as we wanted them.
	shown   map[v1.NodeConditionType]v1.ConditionStatus
	flips   []time.Time
	stopped bool
}

// observe compares the Node with what we want. It returns what to tell when the
// conditions are to be left alone from now on, once. A node controller that
// makes conditions Unknown because it has not heard of us is no rival.
func (r *rival) observe(has, wanted []v1.NodeCondition, now time.Time) (told string) {
	for _, want := range wanted {
		is := condition(has, want.Type)
		switch {
		case is == nil:
		case is.Status == want.Status:
			r.shown[want.Type] = is.Status
		case r.shown[want.Type] == want.Status && is.Status != v1.ConditionUnknown:
			delete(r.shown, want.Type)
			r.flips = append(r.flips, now)
			for now.Sub(r.flips[0]) > flipWindow {
				r.flips = r.flips[1:]
			}
			if len(r.flips) >= maxFlips && !r.stopped {
				r.stopped = true
				told = fmt.Sprintf("%s was turned to %s (%s) against evictd, the %dth turn within %v: another eviction manager runs here; choose mode backstop or takeover",
					want.Type, is.Status, is.Reason, len(r.flips), flipWindow)
			}
		}
	}
	return told
}
