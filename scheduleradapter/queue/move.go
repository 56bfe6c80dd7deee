package queue

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// requeued is a pod that an event moves.
type requeued struct {
	entry    *Entry
	strategy queueingStrategy
}

// MoveAllToActiveOrBackoff handles a cluster event: an unschedulable or gated pod
// moves if a queueing hint of the plugins that rejected it returns Queue. Events of
// the pod itself are passed to Update. It returns the number of pods that became
// active or went to backoff. The occurrence must not change afterwards: it is kept
// for the pods in flight. The deletion event of an assumed pod does not move that
// pod.
func (q *Queue) MoveAllToActiveOrBackoff(now time.Time, o *framework.Occurrence) int {
	if !q.isEventOfInterest(o.Event) {
		return 0
	}
	q.inFlight.record(o, nil)
	for _, r := range q.rejections {
		hints := r.hintsOf(o.Event)
		if !hints.mayRequeue() {
			continue
		}
		for _, e := range r.members {
			if o.Resource == framework.AssignedPod && o.OldPod != nil && o.OldPod.UID == e.Pod.UID {
				continue
			}
			if strategy := hints.worth(e, o); strategy != queueSkip {
				q.requeued = append(q.requeued, requeued{e, strategy})
			}
		}
	}
	return q.requeue(now, o)
}

// requeue moves the pods and returns how many are not gated. Those that move because a pod
// left a node are woken.
func (q *Queue) requeue(now time.Time, o *framework.Occurrence) (moved int) {
	for _, r := range q.requeued {
		e := r.entry
		if q.enqueue(e, now, r.strategy, e.by, o.Event) == Gated {
			continue
		}
		if moved++; e.group == nil && e.by.gate == "" && o.Left != (nodetable.Symbol{}) {
			e.woken = true
			q.inFlight.wake(e, o)
		}
	}
	clear(q.requeued)
	q.requeued = q.requeued[:0]
	return moved
}

// isEventOfInterest reports whether any plugin registered for the event. Other
// events are not kept for the pods in flight.
func (q *Queue) isEventOfInterest(event framework.Event) bool {
	known, ok := q.interest[event]
	if ok {
		return known
	}
	interested := isWildcard(event)
	for _, p := range q.profiles {
		for plugin := range p.hints {
			interested = interested || p.isRegistered(plugin, event)
		}
	}
	q.interest[event] = interested
	return interested
}

// strategyForInFlightPod evaluates the events since the Pop of a pod.
func (q *Queue) strategyForInFlightPod(e *Entry, r *rejection) queueingStrategy {
	best := queueSkip
	for _, happened := range q.inFlight.since(e) {
		if happened.only != nil && happened.only != e {
			continue
		}
		best = max(best, r.hintsOf(happened.occurrence.Event).isPodWorthRequeuing(e.Pod, happened.occurrence))
		if best == queueImmediately || best == queueAfterBackoff && len(r.pending) == 0 {
			break
		}
	}
	return best
}

// mostEvents bounds the events for which Pop asks the queueing hints of a woken pod.
const mostEvents = 64

// remainsWoken reports whether an attempt of a woken pod may succeed: the room for which
// it was woken may be used by now. Of all pods that a departure wakes, those that find room
// are attempted. Pods that are not woken are always attempted.
func (q *Queue) remainsWoken(e *Entry) bool {
	return !e.woken || len(q.inFlight.since(e)) > mostEvents || q.strategyForInFlightPod(e, e.by) != queueSkip
}

// sleep ends the recording of events for a woken pod.
func (q *Queue) sleep(e *Entry) {
	if e.woken {
		e.woken = false
		q.inFlight.leave(e)
	}
}

// Activate moves pods to the active queue unless PreEnqueue gates them. A pod in
// flight goes to backoff if it is rejected.
func (q *Queue) Activate(now time.Time, uids ...types.UID) { q.wake(now, queueImmediately, uids) }

// Retry is Activate when the backoff of the last attempt has ended, as after an error: what followed from that attempt
// has failed.
func (q *Queue) Retry(now time.Time, uids ...types.UID) { q.wake(now, queueAfterBackoff, uids) }

func (q *Queue) wake(now time.Time, o queueingStrategy, uids []types.UID) {
	for _, uid := range uids {
		e := q.entries[uid]
		if e == nil {
			continue
		}
		if e.group != nil && e.group.entry != nil && e.place != Binding {
			e = e.group.entry
		}
		switch e.place {
		case Active:
			q.sleep(e)
		case Backoff, Unschedulable, Gated:
			if o == queueAfterBackoff {
				e.Errors = max(1, e.Unsuccessful)
			}
			q.enqueue(e, now, o, e.by, framework.ForceActivate)
		case InFlight:
			q.inFlight.record(&framework.Occurrence{Event: framework.ForceActivate}, e)
		}
	}
}

// Flush moves pods whose backoff has ended to the active queue, and each 30 s the
// pods that exceed MaxUnschedulable.
func (q *Queue) Flush(now time.Time) {
	q.latest = now
	if flush := q.lastFlush(now); flush.After(q.flushed) {
		q.flushed = flush
		for e := q.waiting.first(); e != nil && q.overdue(e, flush); e = q.waiting.first() {
			q.waiting.remove(e)
			e.Flushed = true
			q.requeued = append(q.requeued, requeued{e, queueAfterBackoff})
		}
		q.requeue(now, &framework.Occurrence{Event: framework.UnschedulableTimeout})
	}
	for _, h := range [...]*heap{&q.backoff, &q.errors} {
		for e := h.first(); e != nil && !e.isBackingOff(now); e = h.first() {
			q.put(e, Active, e.by, backoffComplete) // PreEnqueue ran on the way into backoff
		}
	}
}

// Next is the earliest instant at which Pop returns a pod if no event happens;
// false: never.
func (q *Queue) Next(now time.Time) (time.Time, bool) {
	if q.active.first() != nil || q.backoff.first() != nil {
		return now, true
	}
	var next time.Time
	if e := q.errors.first(); e != nil {
		next = e.Backoff.Add(window)
	}
	if e := q.waiting.first(); e != nil {
		if at := q.nextFlush(e); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if next.IsZero() {
		return time.Time{}, false
	}
	if next.Before(now) {
		next = now
	}
	return next, true
}

// enqueue runs PreEnqueue and moves a pod to the active queue, to backoff, or to
// the gated pods. by is its last rejection.
func (q *Queue) enqueue(e *Entry, now time.Time, o queueingStrategy, by *rejection, why framework.Event) Place {
	q.sleep(e)
	to := Active
	if o == queueAfterBackoff && e.isBackingOff(now) {
		to = Backoff
	}
	if e.Gate = q.preEnqueue(e); !e.Gate.OK() {
		var last Rejection
		if by != nil {
			last = Rejection{by.unschedulable, by.pending}
		}
		to, by = Gated, q.rejection(e.profile, last, e.Gate.Plugin)
	}
	q.put(e, to, by, why)
	return to
}

func (q *Queue) put(e *Entry, to Place, by *rejection, why framework.Event) {
	if e.group != nil && !e.IsPodGroup() {
		q.putMember(e, to, why)
		return
	}
	from := e.place
	if to != Active {
		q.sleep(e)
	}
	switch from {
	case Active, Backoff:
		e.heap.remove(e)
	case Unschedulable, Gated:
		e.by.remove(e)
		if e.at[byTimeout] >= 0 {
			q.waiting.remove(e)
		}
	case InFlight:
		q.inFlight.leave(e)
	}
	if e.by != nil {
		e.by.pods--
	}
	if by != nil {
		by.pods++
	}
	e.place, e.by = to, by
	e.Unschedulable, e.Pending = nil, nil
	if by != nil {
		e.Unschedulable, e.Pending = by.unschedulable, by.pending
	}
	switch to {
	case Active:
		e.heap = &q.active
	case Backoff:
		e.heap = &q.backoff
		if e.Errors > 0 || e.IsPodGroup() {
			e.heap = &q.errors
		}
	case Unschedulable, Gated:
		by.add(e)
		if by.hintsOf(framework.UnschedulableTimeout).always {
			q.waiting.push(e)
		}
	case InFlight:
		q.inFlight.enter(e)
	}
	if to == Active || to == Backoff {
		e.heap.push(e)
	}
	if !e.IsPodGroup() {
		q.count(e, from, why)
	}
	for _, member := range e.Members {
		q.putMember(member, to, why)
	}
}

func (q *Queue) count(e *Entry, from Place, why framework.Event) {
	if from == e.place {
		return
	}
	q.depths[from]--
	q.depths[e.place]++
	if why != (framework.Event{}) {
		q.arrived[Arrival{e.place, why}]++
	}
	if q.cfg.Moved != nil {
		q.cfg.Moved(e, from, why)
	}
}

// profile finds a profile; a name that is not configured has an empty one.
func (q *Queue) profile(name string) *profile {
	p := q.profiles[name]
	if p == nil {
		p = newProfile(name, nil)
		q.profiles[name] = p
	}
	return p
}

// Get finds a pod; nil: the queue does not have it.
func (q *Queue) Get(uid types.UID) *Entry { return q.entries[uid] }

// Entries lists all pods in the order of arrival.
func (q *Queue) Entries() []*Entry {
	return slices.SortedFunc(maps.Values(q.entries), func(a, b *Entry) int { return int(a.arrival) - int(b.arrival) })
}

// Find returns the first pod by arrival for which a function returns true; nil:
// none.
func (q *Queue) Find(is func(*nodetable.Pod) bool) (first *Entry) {
	for _, e := range q.entries {
		if (first == nil || e.arrival < first.arrival) && is(e.Pod) {
			first = e
		}
	}
	return first
}

// Len is the number of pods.
func (q *Queue) Len() int { return len(q.entries) }

// Depth is the number of pods in a place.
func (q *Queue) Depth(p Place) int { return q.depths[p] }

// InFlightEvents counts the events that are kept for the pods in flight.
func (q *Queue) InFlightEvents() map[framework.Event]int {
	counts := map[framework.Event]int{}
	for _, happened := range q.inFlight.events[q.inFlight.dead:] {
		counts[happened.occurrence.Event]++
	}
	return counts
}

// Arrival is the move of a pod to a place by an event.
type Arrival struct {
	To Place
	By framework.Event
}

// Arrivals counts moves since the start: kube-scheduler's
// queue_incoming_pods_total.
func (q *Queue) Arrivals() map[Arrival]int { return maps.Clone(q.arrived) }
