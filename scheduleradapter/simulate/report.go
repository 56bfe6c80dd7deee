package simulate

import (
	"time"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Reporter is told of what happens, in order, and at last of the summary.
type Reporter interface {
	Attempt(a *Attempt)
	Event(e *Event)
	// End tells whether everything could be written.
	End(s Summary) error
}

// Attempt to find a node for a pod. It is good until the report returns.
type Attempt struct {
	At time.Duration
	cycle.Attempt
}

// Event is what became of a running pod.
type Event struct {
	At   time.Duration
	Kind EventKind
	Pod  *nodetable.Pod
	Node string
	By   Cause
	// Taint that drove the pod away, of an eviction.
	Taint string
}

// EventKind is what happened.
type EventKind string

// A pod that is evicted is deleted when its grace period has passed.
const (
	Evicted EventKind = "evicted"
	Deleted EventKind = "deleted"
)

// Cause of an event.
type Cause string

// Why pods go.
const (
	ByPreemption Cause = "preemption"
	ByTaint      Cause = "taint"
)

// Summary counts pods at the end: those that got a node, those that did not by
// what keeps them, and the running ones that had to go.
type Summary struct {
	Scheduled     int `json:"scheduled"`
	Unschedulable int `json:"unschedulable"`
	Gated         int `json:"gated"`
	Waiting       int `json:"waiting"`
	Preempted     int `json:"preempted"`
	Evicted       int `json:"evicted"`
}
