package queue

import (
	"maps"
	"slices"
	"strings"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Profile is the part of a framework.Runner that the queue uses. It must not call
// the queue.
type Profile interface {
	// PreEnqueue returns Success, or why the pod is gated.
	PreEnqueue(pod *nodetable.Pod) framework.Status
	// Hints are the queueing hints by plugin.
	Hints() map[string][]framework.EventHint
}

// Rejection has the plugins that rejected a pod in an attempt. Both lists are empty
// after an error.
type Rejection struct {
	Unschedulable []string
	Pending       []string // returned the code Pending: an event moves the pod without backoff
}

// profile is a Profile with the rejections of its pods.
type profile struct {
	name       string
	preEnqueue func(pod *nodetable.Pod) framework.Status
	hints      map[string][]framework.EventHint
	rejections map[string]*rejection
}

// newProfile wraps a profile; nil: no PreEnqueue plugins and no hints.
func newProfile(name string, p Profile) *profile {
	own := &profile{
		name:       name,
		preEnqueue: func(*nodetable.Pod) framework.Status { return framework.Status{} },
		hints:      map[string][]framework.EventHint{},
		rejections: map[string]*rejection{},
	}
	if p != nil {
		own.preEnqueue = p.PreEnqueue
		maps.Copy(own.hints, p.Hints())
	}
	return own
}

func (p *profile) isRegistered(plugin string, event framework.Event) bool {
	return slices.ContainsFunc(p.hints[plugin], func(h framework.EventHint) bool { return h.Event.Includes(event) })
}

// rejection groups the pods that the same plugins rejected, so that an event is
// matched with the queueing hints once per group. Groups are kept; there are a few
// dozen.
type rejection struct {
	profile                *profile
	unschedulable, pending []string // sorted
	gate                   string   // the PreEnqueue plugin that gates the pods; empty: not gated
	members                []*Entry // unschedulable or gated
	pods                   int      // members, and pods in active or backoff after this rejection
	hints                  map[framework.Event]eventHints
}

// eventHints are the queueing hints that a rejection has for an event.
type eventHints struct {
	always  bool // requeue without calling a hint
	hints   []framework.EventHint
	pending int // the first hints are those of plugins that returned Pending
}

func (h eventHints) mayRequeue() bool { return h.always || len(h.hints) > 0 }

// queueingStrategy is how an event requeues a pod, as in kube-scheduler.
type queueingStrategy uint8

const (
	queueSkip queueingStrategy = iota
	queueAfterBackoff
	queueImmediately
)

// isPodWorthRequeuing calls the hints. An error counts as Queue.
func (h eventHints) isPodWorthRequeuing(pod *nodetable.Pod, o *framework.Occurrence) queueingStrategy {
	if h.always {
		return queueAfterBackoff
	}
	for i, hint := range h.hints {
		if hint.Hint != nil {
			if result, err := hint.Hint(o, pod); err == nil && result == framework.QueueSkip {
				continue
			}
		}
		if i < h.pending {
			return queueImmediately
		}
		return queueAfterBackoff
	}
	return queueSkip
}

// hintsOf caches hintsFor.
func (r *rejection) hintsOf(event framework.Event) eventHints {
	known, ok := r.hints[event]
	if !ok {
		known = r.hintsFor(event)
		r.hints[event] = known
	}
	return known
}

// hintsFor follows kube-scheduler: an event for which the gate plugin did not
// register does not move a gated pod, and a wildcard event calls no hint.
func (r *rejection) hintsFor(event framework.Event) eventHints {
	if r.gate != "" && !r.profile.isRegistered(r.gate, event) {
		return eventHints{}
	}
	if isWildcard(event) {
		return eventHints{always: true}
	}
	var h eventHints
	for _, plugin := range r.pending {
		h.add(r.profile.hints[plugin], event)
	}
	h.pending = len(h.hints)
	for _, plugin := range r.unschedulable {
		if !slices.Contains(r.pending, plugin) {
			h.add(r.profile.hints[plugin], event)
		}
	}
	return h
}

func (h *eventHints) add(hints []framework.EventHint, event framework.Event) {
	for _, hint := range hints {
		if hint.Event.Includes(event) {
			h.hints = append(h.hints, hint)
		}
	}
}

func (r *rejection) add(e *Entry) {
	e.member = len(r.members)
	r.members = append(r.members, e)
}

func (r *rejection) remove(e *Entry) {
	last := len(r.members) - 1
	moved := r.members[last]
	r.members[e.member] = moved
	moved.member = e.member
	r.members[last] = nil
	r.members = r.members[:last]
}

// rejection finds or adds the rejection by plugins and gate.
func (q *Queue) rejection(p *profile, by Rejection, gate string) *rejection {
	names := append(q.names[:0], by.Unschedulable...)
	if gate != "" {
		names = append(names, gate)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	n := len(names)
	names = append(names, by.Pending...)
	slices.Sort(names[n:])
	unschedulable, pending := names[:n], slices.Compact(names[n:])
	q.names = names

	key := append(q.key[:0], gate...)
	for _, list := range [...][]string{unschedulable, pending} {
		key = append(key, 1)
		for _, name := range list {
			key = append(key, 0)
			key = append(key, name...)
		}
	}
	q.key = key

	if r, ok := p.rejections[string(key)]; ok {
		return r
	}
	r := &rejection{
		profile:       p,
		unschedulable: slices.Clone(unschedulable),
		pending:       slices.Clone(pending),
		gate:          gate,
		hints:         map[framework.Event]eventHints{},
	}
	p.rejections[string(key)] = r
	q.rejections = append(q.rejections, r)
	return r
}

// UnschedulableCount is the number of pods that a plugin rejected in their last
// attempt.
type UnschedulableCount struct {
	Profile, Plugin string
	Pods            int
}

// UnschedulablePods counts the pods by profile and plugin, including active and
// backoff pods: kube-scheduler's unschedulable_pods. Plugins without such pods are
// listed with zero.
func (q *Queue) UnschedulablePods() []UnschedulableCount {
	counts := map[UnschedulableCount]int{}
	for _, r := range q.rejections {
		for _, names := range [...][]string{r.unschedulable, r.pending} {
			for _, name := range names {
				counts[UnschedulableCount{Profile: r.profile.name, Plugin: name}] += r.pods
			}
		}
	}
	all := make([]UnschedulableCount, 0, len(counts))
	for b, n := range counts {
		b.Pods = n
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b UnschedulableCount) int {
		if c := strings.Compare(a.Profile, b.Profile); c != 0 {
			return c
		}
		return strings.Compare(a.Plugin, b.Plugin)
	})
	return all
}
