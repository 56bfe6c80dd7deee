package simulate

import (
	"time"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Reporter receives the attempts and events in order, and then the summary.
type Reporter interface {
	Attempt(a *Attempt)
	Event(e *Event)
	PodGroup(g *PodGroup)
	// End returns the first write error.
	End(s Summary) error
}

// Attempt to schedule a pod. It is valid during the call.
type Attempt struct {
	At time.Duration
	cycle.Attempt
}

// PodGroup is a change of the condition PodGroupInitiallyScheduled.
type PodGroup struct {
	At time.Duration
	cycle.PodGroupResult
}

// Event of an assigned pod.
type Event struct {
	At   time.Duration
	Kind EventKind
	Pod  *nodetable.Pod
	Node string
	By   Cause
	// Taint of an eviction.
	Taint string
}

type EventKind string

// An evicted pod is deleted after its grace period.
const (
	Evicted EventKind = "evicted"
	Deleted EventKind = "deleted"
)

// Cause of an event.
type Cause string

// Causes.
const (
	ByPreemption Cause = "preemption"
	ByTaint      Cause = "taint"
)

// Summary counts pods at the end.
type Summary struct {
	Scheduled     int `json:"scheduled"`
	Unschedulable int `json:"unschedulable"`
	Gated         int `json:"gated"`
	Waiting       int `json:"waiting"`
	Preempted     int `json:"preempted"`
	Evicted       int `json:"evicted"`
}
