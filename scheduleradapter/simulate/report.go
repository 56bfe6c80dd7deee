package simulate

import (
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Reporter is told of what happens, in order, and at last of the summary.
type Reporter interface {
	Attempt(a *Attempt)
	Event(e *Event)
	// End tells whether everything could be written.
	End(s Summary) error
}

// Outcome of an attempt, as the output names it.
type Outcome string

// What may become of an attempt. A gated pod has not been tried at all.
const (
	Scheduled     Outcome = "scheduled"
	Unschedulable Outcome = "unschedulable"
	Nominated     Outcome = "nominated"
	Gated         Outcome = "gated"
	Waiting       Outcome = "waiting"
	Failed        Outcome = "error"
)

// Attempt to find a node for a pod.
type Attempt struct {
	At     time.Duration
	Pod    *nodetable.Pod
	Number int // from 1; 0 where the pod was not tried
	Outcome
	// Node the pod has, or waits for.
	Node string
	// Cycle is how the nodes did, nil where none was looked at. It is good until
	// the report returns.
	Cycle     *framework.Cycle
	Nominated string
	Victims   []*nodetable.Pod
	Message   string
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
