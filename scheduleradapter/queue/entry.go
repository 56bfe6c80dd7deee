package queue

import (
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// Place is where the queue keeps a pod: in exactly one place at a time.
type Place uint8

const (
	Nowhere       Place = iota // not, or no longer, in the queue
	Active                     // ready for an attempt
	Backoff                    // waits for its backoff to pass
	Unschedulable              // waits for an event that may help
	Gated                      // held back by a PreEnqueue plugin
	InFlight                   // an attempt is under way, to the end of Permit
	Binding                    // permitted; not bound yet
	places
)

// String is the place as the queue label of kube-scheduler's metrics names it,
// where that has it.
func (p Place) String() string {
	return [places]string{"nowhere", "active", "backoff", "unschedulable", "gated", "inflight", "binding"}[p]
}

// Entry is a pod in the queue with its history. Its fields are for reading; the
// queue alone changes them.
type Entry struct {
	// Queued is the pod's latest version, and when it came or failed last. An
	// attempt goes on with the version it started with.
	framework.Queued

	Added   time.Time // when the pod came
	Flushed bool      // since the last failure it was retried for having waited long

	profile *profile
	place   Place
	arrival uint64     // breaks every tie
	by      *rejection // who rejected it; nil after a pop or an error
	heap    *heap      // the heap that holds it while active or in backoff
	at      [slots]int // where in the heap of that slot, -1 for none
	member  int        // where in by.members, while unschedulable or gated
	from    uint64     // number of the first event since it was popped
	older   *Entry     // neighbours in flight, in order of popping
	younger *Entry
}

// The slots of heap.
const (
	bySchedule = iota // active, backoff or error backoff
	byTimeout         // pods that are retried when they have waited long
	slots
)

// Place is where the pod is.
func (e *Entry) Place() Place { return e.place }

// Rejection is who rejected the pod last; empty once it is popped again.
func (e *Entry) Rejection() Rejection {
	if e.by == nil {
		return Rejection{}
	}
	return Rejection{Unschedulable: e.by.unschedulable, Pending: e.by.pending}
}
