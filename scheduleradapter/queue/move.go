package queue

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// requeued is a pod at queueSkip that an event helps.
type requeued struct {
	entry    *Entry
	strategy queueingStrategy
}

// MoveAllToActiveOrBackoff tells the queue of a change in the cluster: of every pod at queueSkip, the
// hints of the plugins that rejected it decide whether it is tried again. Changes
// of a waiting pod itself go to Update; other pods' wait for UnscheduledPod here.
// It returns how many pods became active or went to backoff. The occurrence may
// be kept for the pods in flight and must not change any more. A pod that leaves
// its node, where it was only assumed to be, does not wake itself.
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
			if strategy := hints.isPodWorthRequeuing(e.Pod, o); strategy != queueSkip {
				q.requeued = append(q.requeued, requeued{e, strategy})
			}
		}
	}
	return q.requeue(now, o.Event)
}

// wake moves the requeued and returns how many no gate held back.
func (q *Queue) requeue(now time.Time, why framework.Event) (moved int) {
	for _, r := range q.requeued {
		if q.enqueue(r.entry, now, r.strategy, r.entry.by, why) != Gated {
			moved++
		}
	}
	clear(q.requeued)
	q.requeued = q.requeued[:0]
	return moved
}

// interested says whether any plugin registered for the event. What nobody
// registered for is not kept for the pods in flight either.
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

// replay judges what happened while the pod was in flight.
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

// Activate makes pods active whatever they wait for, except for a gate that
// still holds. A pod in flight comes back to backoff if it is rejected.
func (q *Queue) Activate(now time.Time, uids ...types.UID) {
	for _, uid := range uids {
		e := q.entries[uid]
		if e == nil {
			continue
		}
		switch e.place {
		case Backoff, Unschedulable, Gated:
			q.enqueue(e, now, queueImmediately, e.by, framework.ForceActivate)
		case InFlight:
			q.inFlight.record(&framework.Occurrence{Event: framework.ForceActivate}, e)
		}
	}
}

// Advance does what time brings: pods whose backoff has passed become active,
// and every 30 seconds those that have rested too long are tried again.
func (q *Queue) Flush(now time.Time) {
	if flush := q.lastFlush(now); flush.After(q.flushed) {
		q.flushed = flush
		for e := q.waiting.first(); e != nil && q.overdue(e, flush); e = q.waiting.first() {
			q.waiting.remove(e)
			e.Flushed = true
			q.requeued = append(q.requeued, requeued{e, queueAfterBackoff})
		}
		q.requeue(now, framework.UnschedulableTimeout)
	}
	for _, h := range [...]*heap{&q.backoff, &q.errors} {
		for e := h.first(); e != nil && !e.isBackingOff(now); e = h.first() {
			q.put(e, Active, e.by, backoffComplete) // its gates were asked on the way into backoff
		}
	}
}

// Next is the instant of the next Pop that hands out a pod if nothing happens
// before, at the earliest: now where there is a pod to pop. It reports false
// where time alone brings none.
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

// enqueue moves a pod towards its next attempt, as far as gates and backoff let
// it; by is who rejected it last.
func (q *Queue) enqueue(e *Entry, now time.Time, o queueingStrategy, by *rejection, why framework.Event) Place {
	to := Active
	if o == queueAfterBackoff && e.isBackingOff(now) {
		to = Backoff
	}
	if e.Gate = e.profile.preEnqueue(e.Pod); !e.Gate.OK() {
		var last Rejection
		if by != nil {
			last = Rejection{by.unschedulable, by.pending}
		}
		to, by = Gated, q.rejection(e.profile, last, e.Gate.Plugin)
	}
	q.put(e, to, by, why)
	return to
}

// put is the only way from one place to another.
func (q *Queue) put(e *Entry, to Place, by *rejection, why framework.Event) {
	from := e.place
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
		if e.Errors > 0 {
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
	q.count(e, from, why)
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

// profile finds a profile; a name that was not configured gets an empty one.
func (q *Queue) profile(name string) *profile {
	p := q.profiles[name]
	if p == nil {
		p = newProfile(name, nil)
		q.profiles[name] = p
	}
	return p
}

// Get finds a pod, nil where the queue has none of that UID.
func (q *Queue) Get(uid types.UID) *Entry { return q.entries[uid] }

// Entries is every pod in the order in which they came.
func (q *Queue) Entries() []*Entry {
	return slices.SortedFunc(maps.Values(q.entries), func(a, b *Entry) int { return int(a.arrival) - int(b.arrival) })
}

// Find is the first to have come of the pods that a function means; nil for none.
func (q *Queue) Find(is func(*nodetable.Pod) bool) (first *Entry) {
	for _, e := range q.entries {
		if (first == nil || e.arrival < first.arrival) && is(e.Pod) {
			first = e
		}
	}
	return first
}

// Len is how many pods there are.
func (q *Queue) Len() int { return len(q.entries) }

// Depth is how many pods are in a place of the queue.
func (q *Queue) Depth(p Place) int { return q.depths[p] }

// InFlightEvents counts the events that are kept for the pods in flight.
func (q *Queue) InFlightEvents() map[framework.Event]int {
	counts := map[framework.Event]int{}
	for _, happened := range q.inFlight.events[q.inFlight.dead:] {
		counts[happened.occurrence.Event]++
	}
	return counts
}

// Arrival is a way into a place.
type Arrival struct {
	To Place
	By framework.Event
}

// Arrivals counts pods by where they went and why since the queue began:
// kube-scheduler's queue_incoming_pods_total.
func (q *Queue) Arrivals() map[Arrival]int { return maps.Clone(q.arrived) }
