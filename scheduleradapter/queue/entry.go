package queue

import (
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// Place is the part of the queue that has a pod. A pod is in one place.
type Place uint8

const (
	Nowhere       Place = iota // not in the queue
	Active                     // ready to be popped
	Backoff                    // until the backoff ends
	Unschedulable              // until an event moves the pod
	Gated                      // rejected by a PreEnqueue plugin
	InFlight                   // in a scheduling cycle
	Binding                    // in the binding cycle
	Ungrouped                  // until its pod group exists, or its attempt ends
	places
)

// String is the queue label of kube-scheduler's metrics, if there is one.
func (p Place) String() string {
	return [places]string{"nowhere", "active", "backoff", "unschedulable", "gated", "inflight", "binding", "ungrouped"}[p]
}

// Entry is a pod or a pod group in the queue. Only the queue changes its fields.
type Entry struct {
	// Queued has the pod's latest version, and its arrival or last failure.
	framework.Queued

	Added   time.Time // arrival of the pod
	Flushed bool      // moved by a flush since the last failure
	Members []*Entry  // of a pod group, in the order in which they are tried

	profile *profile
	place   Place
	arrival uint64     // order of arrival
	by      *rejection // plugins that rejected the pod; nil after Pop and after an error
	heap    *heap      // heap of an active or backoff pod
	at      [slots]int // index in the heap of each slot; -1: none
	member  int        // index in by.members, if unschedulable or gated
	from    uint64     // number of the first event after Pop, or of the event that woke the pod
	woken   bool       // active or in backoff, because another pod left a node
	group   *podGroup  // nil: none
	older   *Entry     // in-flight pods in the order of Pop
	younger *Entry
}

// Slots of heaps.
const (
	bySchedule = iota // active, backoff, errors
	byTimeout         // timeouts
	slots
)

func (e *Entry) Place() Place { return e.place }

// Rejection has the plugins that rejected the pod last; empty after Pop.
func (e *Entry) Rejection() Rejection {
	if e.by == nil {
		return Rejection{}
	}
	return Rejection{Unschedulable: e.by.unschedulable, Pending: e.by.pending}
}
