// Package queue is the scheduling queue: active pods, pods in backoff,
// unschedulable pods, gated pods and pods in flight. The rules are those of
// kube-scheduler 1.37 with the features SchedulerPopFromBackoffQ and queueing
// hints.
//
// One goroutine owns a Queue. Time is an argument and never decreases; the same
// calls have the same results.
package queue

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Events of the queue itself.
var (
	podAdded        = framework.Event{Resource: framework.UnscheduledPod, Action: framework.Add}
	attemptFailed   = framework.Event{Name: "ScheduleAttemptFailure"}
	backoffComplete = framework.Event{Name: "BackoffComplete"}
)

// isWildcard reports whether the event stands for all events.
func isWildcard(e framework.Event) bool {
	return e.Resource == framework.AnyResource && e.Action == framework.All
}

// Config of a Queue.
type Config struct {
	// Less is the QueueSort plugin: a precedes b. Pods that it does not order are
	// popped in the order of arrival.
	Less func(a, b framework.Queued) bool
	// Profiles by scheduler name. Pods of another name have no PreEnqueue plugins,
	// and only the timeout moves them.
	Profiles map[string]Profile

	InitialBackoff   time.Duration // after the first failure; doubles with each further one
	MaxBackoff       time.Duration // zero: no backoff
	MaxUnschedulable time.Duration // a pod that is unschedulable for longer is moved without an event; zero: 5 minutes

	// PodGroups: pods that name a PodGroup are queued as a group, and wait until the
	// PodGroup exists.
	PodGroups bool

	// Moved is called when a pod changes its place, with the event that moved it;
	// nil: not called. It must not call the queue. The event is zero if a call moved
	// the pod.
	Moved func(e *Entry, from Place, why framework.Event)
}

// Queue has all pods without a node, each in one place.
type Queue struct {
	cfg      Config
	start    time.Time
	flushed  time.Time // last flush of overdue pods
	latest   time.Time // of the latest flush
	profiles map[string]*profile
	groups   map[nodetable.PodGroupKey]*podGroup
	arrivals uint64

	entries    map[types.UID]*Entry
	active     heap
	backoff    heap         // after rejections; Pop may take a pod before its backoff ends
	errors     heap         // after errors; Pop takes a pod when its backoff has ended
	waiting    heap         // unschedulable pods by the time since their failure
	rejections []*rejection // in the order of first appearance; each unschedulable pod is a member of one
	inFlight   inFlightPods

	depths   [places]int
	arrived  map[Arrival]int
	interest map[framework.Event]bool // cache of isEventOfInterest

	names    []string   // buffer of rejection
	key      []byte     // buffer of rejection
	requeued []requeued // buffer of Flush and MoveAllToActiveOrBackoff
}

// New makes an empty queue whose time starts at an instant.
func New(start time.Time, cfg Config) *Queue {
	cfg.MaxUnschedulable = cmp.Or(cfg.MaxUnschedulable, 5*time.Minute)
	q := &Queue{
		cfg:      cfg,
		start:    start,
		flushed:  start,
		profiles: map[string]*profile{},
		groups:   map[nodetable.PodGroupKey]*podGroup{},
		entries:  map[types.UID]*Entry{},
		arrived:  map[Arrival]int{},
		interest: map[framework.Event]bool{},
	}
	earlier := func(a, b *Entry) bool { return a.arrival < b.arrival }
	ranked := func(a, b *Entry) bool {
		return cfg.Less(a.Queued, b.Queued) || !cfg.Less(b.Queued, a.Queued) && earlier(a, b)
	}
	// by orders entries by an instant, then by tie.
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

// Add adds a pod without a node. A known pod is updated and keeps its place.
func (q *Queue) Add(now time.Time, pod *nodetable.Pod) Place { return q.Update(now, pod, 0) }

// Update takes the new version of a pod; changed is the union of its UpdatePod...
// actions. An unschedulable or gated pod moves if a queueing hint of the plugins
// that rejected it returns Queue. An unknown pod is added.
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
		if key := nodetable.PodGroupOf(pod.Object); q.cfg.PodGroups && key != (nodetable.PodGroupKey{}) {
			e.group = q.groupOf(key)
			e.group.pods[pod.UID] = e
			return q.join(now, e)
		}
		return q.enqueue(e, now, queueImmediately, nil, podAdded)
	}
	old := e.Pod
	e.Pod = pod
	if e.group != nil {
		return q.updateMember(now, e, old, changed)
	}
	switch e.place {
	case Active, Backoff:
		e.heap.fix(e)
		if changed != 0 {
			q.sleep(e)
		}
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

// Delete removes a pod that is bound or deleted. A running attempt does not add it
// again.
func (q *Queue) Delete(uid types.UID) {
	e := q.entries[uid]
	if e == nil {
		return
	}
	delete(q.entries, uid)
	e.Gate = framework.Status{}
	if e.group != nil {
		if e.place == Binding {
			e.group.failed = 0
		}
		delete(e.group.pods, uid)
		q.leave(q.latest, e)
		q.drop(e.group)
	}
	q.put(e, Nowhere, nil, framework.Event{})
}

// Pop flushes and removes the first active pod or pod group, or else the first pod in backoff
// after a rejection; nil: there is none. Woken pods that found no room are unschedulable
// again. The pod is in flight until Fail, Permit or
// Delete; a pod group and its pods are until EndPodGroup.
func (q *Queue) Pop(now time.Time) *Entry {
	q.Flush(now)
	e := q.first()
	for ; e != nil && !q.remainsWoken(e); e = q.first() {
		q.put(e, Unschedulable, e.by, framework.Event{})
	}
	if e == nil {
		return nil
	}
	for _, popped := range append([]*Entry{e}, e.Members...) {
		if popped.Attempts++; popped.Attempts == 1 {
			popped.FirstAttempt = now
		}
	}
	q.put(e, InFlight, nil, framework.Event{})
	return e
}

func (q *Queue) first() *Entry {
	if e := q.active.first(); e != nil {
		return e
	}
	return q.backoff.first()
}

// Permit ends the recording of events for a pod that enters the binding cycle.
// Delete or Fail follows.
func (q *Queue) Permit(e *Entry) {
	if e.place == InFlight {
		if e.group != nil {
			q.leave(q.latest, e)
		}
		q.put(e, Binding, nil, framework.Event{})
	}
}

// Fail adds a pod whose attempt failed. After an error it goes to backoff. After a
// rejection it is unschedulable, unless an event since its Pop moves it, or it was
// in the binding cycle. A pod that is not in flight or binding keeps its place.
func (q *Queue) Fail(now time.Time, e *Entry, by Rejection) Place {
	if e.place != InFlight && e.place != Binding {
		return e.place
	}
	isError := len(by.Unschedulable)+len(by.Pending) == 0
	if e.group != nil {
		return q.failMember(now, e, by, isError)
	}
	e.Timestamp = now
	e.Flushed = false
	if isError {
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
