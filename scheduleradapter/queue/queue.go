// Package queue decides which pod is tried next, and when a pod that failed is
// tried again: pods ready for an attempt, pods in backoff, pods that wait for an
// event that may help them, pods held back by a gate, and pods under way.
//
// It is one value with one owner: no goroutines, no locks, no clock of its own.
// Time is an argument and does not go backwards; the same hints give the same
// answers. Order, gates and hints are a profile's; the queue never looks at what a
// pod wants. The rules are those of kube-scheduler 1.37 with pods popped early from
// backoff (SchedulerPopFromBackoffQ) and queueing hints.
package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// The queue's own reasons to move a pod, besides those of framework.
var (
	podAdded        = framework.Event{Resource: framework.UnscheduledPod, Action: framework.Add}
	attemptFailed   = framework.Event{Name: "ScheduleAttemptFailure"}
	backoffComplete = framework.Event{Name: "BackoffComplete"}
)

// everything says whether the event stands for every change there is.
func isWildcard(e framework.Event) bool {
	return e.Resource == framework.AnyResource && e.Action == framework.All
}

// Config is what a Queue is made of.
type Config struct {
	// Less is the QueueSort plugin: whether a goes before b. Pods it does not
	// tell apart go in the order in which they came.
	Less func(a, b framework.Queued) bool
	// Profiles by scheduler name. Pods of a profile that is not among them have
	// no gates, and no event but waiting helps them.
	Profiles map[string]Profile

	InitialBackoff   time.Duration // after the first failure; doubles with each
	MaxBackoff       time.Duration // zero: no backoff at all
	MaxUnschedulable time.Duration // a pod that waited longer is retried unasked; zero: 5 minutes

	// Moved is told of every pod that changes its place, and of the event that
	// did it, zero where the caller did; nil for nobody. It must not call the
	// queue.
	Moved func(e *Entry, from Place, why framework.Event)
}

// Queue holds every pod that waits for a node, each in exactly one place.
type Queue struct {
	cfg      Config
	start    time.Time
	flushed  time.Time // the last flush of pods that had waited long
	profiles map[string]*profile
	arrivals uint64

	entries    map[types.UID]*Entry
	active     heap
	backoff    heap         // rejected by plugins; may be popped early
	errors     heap         // failed otherwise; never early
	waiting    heap         // those at queueSkip whom waiting long wakes, longest first
	rejections []*rejection // in order of first appearance; who rests is in one
	inFlight   inFlightPods

	depths   [places]int
	arrived  map[Arrival]int
	interest map[framework.Event]bool // whether any profile registered for the event

	names    []string   // scratch of rejection
	key      []byte     // scratch of rejection
	requeued []requeued // scratch of Advance and Move
}

// New makes an empty queue that begins at an instant.
func New(start time.Time, cfg Config) *Queue {
	if cfg.MaxUnschedulable == 0 {
		cfg.MaxUnschedulable = 5 * time.Minute
	}
	q := &Queue{
		cfg:      cfg,
		start:    start,
		flushed:  start,
		profiles: map[string]*profile{},
		entries:  map[types.UID]*Entry{},
		arrived:  map[Arrival]int{},
		interest: map[framework.Event]bool{},
	}
	earlier := func(a, b *Entry) bool { return a.arrival < b.arrival }
	ranked := func(a, b *Entry) bool {
		return cfg.Less(a.Queued, b.Queued) || !cfg.Less(b.Queued, a.Queued) && earlier(a, b)
	}
	// by orders by an instant, then by what breaks the tie.
	by := func(instant func(*Entry) time.Time, tie func(a, b *Entry) bool) func(a, b *Entry) bool {
		return func(a, b *Entry) bool {
			if c := instant(a).Compare(instant(b)); c != 0 {
				return c < 0
			}
			return tie(a, b)
		}
	}
	expiry := func(e *Entry) time.Time { return e.Backoff }
	since := func(e *Entry) time.Time { return e.Timestamp }
	q.active = heap{slot: bySchedule, less: ranked}
	q.backoff = heap{slot: bySchedule, less: by(expiry, ranked)}
	q.errors = heap{slot: bySchedule, less: by(expiry, earlier)}
	q.waiting = heap{slot: byTimeout, less: by(since, earlier)}
	for name, p := range cfg.Profiles {
		q.profiles[name] = newProfile(name, p)
	}
	return q
}

// Add takes in a pod that has no node. A pod known already gets the new version
// and stays where it is.
func (q *Queue) Add(now time.Time, pod *nodetable.Pod) Place { return q.Update(now, pod, 0) }

// Update takes a pod's new version, of which changed says what is different: one
// or-ed value of UpdatePod... bits. A pod at queueSkip moves if a hint of the plugins
// that rejected it says so; a pod in flight will, when it comes back. A pod not
// known is added.
func (q *Queue) Update(now time.Time, pod *nodetable.Pod, changed framework.Action) Place {
	e := q.entries[pod.UID]
	if e == nil {
		q.arrivals++
		e = &Entry{
			Queued:  framework.Queued{Pod: pod, Timestamp: now, History: &framework.History{}},
			Added:   now,
			profile: q.profile(pod.Object.Spec.SchedulerName),
			arrival: q.arrivals,
			at:      [slots]int{-1, -1},
		}
		q.entries[pod.UID] = e
		return q.enqueue(e, now, queueImmediately, nil, podAdded)
	}
	old := e.Pod
	e.Pod = pod
	switch e.place {
	case Active, Backoff:
		e.heap.fix(e)
	case InFlight, Unschedulable, Gated:
		for bits := changed; bits != 0; bits &= bits - 1 {
			own := &framework.Occurrence{
				Event:  framework.Event{Resource: framework.TargetPod, Action: bits & -bits},
				OldPod: old,
				Pod:    pod,
			}
			if e.place == InFlight {
				q.inFlight.record(own, e)
			} else if o := e.by.hintsOf(own.Event).isPodWorthRequeuing(pod, own); o != queueSkip {
				return q.enqueue(e, now, o, e.by, own.Event)
			}
		}
	}
	return e.place
}

// Delete lets go of a pod, wherever it is: it is bound, or gone. An attempt under
// way ends without effect on the queue.
func (q *Queue) Delete(uid types.UID) {
	if e := q.entries[uid]; e != nil {
		delete(q.entries, uid)
		e.Gate = framework.Status{}
		q.put(e, Nowhere, nil, framework.Event{})
	}
}

// Pop hands out the pod to try now, nil where there is none: the first that is
// ready, else the first in backoff after a rejection. What time has brought is
// done first. The pod is in flight until Fail, Permit or Delete.
func (q *Queue) Pop(now time.Time) *Entry {
	q.Flush(now)
	e := q.active.first()
	if e == nil {
		e = q.backoff.first()
	}
	if e == nil {
		return nil
	}
	if e.Attempts++; e.Attempts == 1 {
		e.FirstAttempt = now
	}
	q.put(e, InFlight, nil, framework.Event{})
	return e
}

// Permit says that the attempt passed Permit and the pod is being bound: events
// are no longer kept for it. Delete follows when it is bound, Fail when not.
func (q *Queue) Permit(e *Entry) {
	if e.place == InFlight {
		q.put(e, Binding, nil, framework.Event{})
	}
}

// Fail takes back a pod whose attempt failed and says where it waits now. An
// error goes to backoff; a rejected pod rests, unless something happened since
// its pop that may help it, or nothing was recorded because it was being bound.
// An entry deleted meanwhile, or not out for an attempt, stays where it is.
func (q *Queue) Fail(now time.Time, e *Entry, by Rejection) Place {
	if e.place != InFlight && e.place != Binding {
		return e.place
	}
	e.Timestamp = now
	e.Flushed = false
	if len(by.Unschedulable)+len(by.Pending) == 0 {
		e.Errors++
		e.Backoff = q.backoffExpiration(e, now)
		return q.enqueue(e, now, queueAfterBackoff, nil, attemptFailed)
	}
	e.Errors = 0
	e.Unsuccessful++
	e.Backoff = q.backoffExpiration(e, now)
	r := q.rejection(e.profile, by, "")
	o := queueAfterBackoff
	if e.place == InFlight {
		o = q.strategyForInFlightPod(e, r)
	}
	if o == queueSkip {
		q.put(e, Unschedulable, r, attemptFailed)
		return Unschedulable
	}
	return q.enqueue(e, now, o, r, attemptFailed)
}
