package queue

import (
	"maps"
	"slices"
	"strings"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Profile is what the queue asks of a scheduler profile; a framework.Runner is
// one. It must not call the queue.
type Profile interface {
	// PreEnqueue says whether the pod may be tried at all.
	PreEnqueue(pod *nodetable.Pod) framework.Status
	// Hints are, by plugin, the events that may mend the plugin's rejections.
	Hints() map[string][]framework.EventHint
}

// Rejection names the plugins that rejected a pod in an attempt. Neither list
// filled means that the attempt ended in an error.
type Rejection struct {
	Unschedulable []string
	Pending       []string // wait for something outside; no backoff once it came
}

// profile is a Profile with the rejections seen under it.
type profile struct {
	name       string
	preEnqueue func(pod *nodetable.Pod) framework.Status
	hints      map[string][]framework.EventHint
	rejections map[string]*rejection
}

// newProfile takes in a profile; nil stands for one not configured, without gates
// and hints.
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

// hears says whether the plugin registered for the event.
func (p *profile) hears(plugin string, event framework.Event) bool {
	return slices.ContainsFunc(p.hints[plugin], func(h framework.EventHint) bool { return h.Event.Includes(event) })
}

// rejection is one way of being rejected, shared by all pods rejected so. An
// event asks once per rejection which hints count, and passes over its pods
// where none does. There are as many as combinations of plugins occur, a few
// dozen; they are kept.
type rejection struct {
	profile                *profile
	unschedulable, pending []string // sorted
	gate                   string   // the plugin of unschedulable that holds the pods back, if any
	members                []*Entry
	carried                int // pods that bear it, waiting here or already on their way
	calls                  map[framework.Event]call
}

// call is what an event means to the pods of a rejection.
type call struct {
	always bool // they are retried, whatever the hints say
	ask    []framework.EventHint
	urgent int // the first hints of ask are those of pending plugins
}

// wakes says whether the event may move any pod.
func (c call) wakes() bool { return c.always || len(c.ask) > 0 }

// outcome is what becomes of a rejected pod.
type outcome uint8

const (
	rest  outcome = iota // nothing that helps happened
	retry                // when its backoff has passed
	hurry                // at once
)

// judge asks the hints about a pod. One that fails is taken to say Queue, so that
// no pod is forgotten over it.
func (c call) judge(pod *nodetable.Pod, o *framework.Occurrence) outcome {
	if c.always {
		return retry
	}
	for i, h := range c.ask {
		if h.Hint != nil {
			if hint, err := h.Hint(o, pod); err == nil && hint == framework.QueueSkip {
				continue
			}
		}
		if i < c.urgent {
			return hurry
		}
		return retry
	}
	return rest
}

// call finds what the event means here, once.
func (r *rejection) call(event framework.Event) call {
	known, ok := r.calls[event]
	if !ok {
		known = r.weigh(event)
		r.calls[event] = known
	}
	return known
}

// weigh follows kube-scheduler: an event its gate did not register for cannot
// free a gated pod; an event that stands for every change asks nobody.
func (r *rejection) weigh(event framework.Event) call {
	if r.gate != "" && !r.profile.hears(r.gate, event) {
		return call{}
	}
	if everything(event) {
		return call{always: true}
	}
	var c call
	for _, plugin := range r.pending {
		c.add(r.profile.hints[plugin], event)
	}
	c.urgent = len(c.ask)
	for _, plugin := range r.unschedulable {
		if !slices.Contains(r.pending, plugin) {
			c.add(r.profile.hints[plugin], event)
		}
	}
	return c
}

func (c *call) add(hints []framework.EventHint, event framework.Event) {
	for _, h := range hints {
		if h.Event.Includes(event) {
			c.ask = append(c.ask, h)
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

// rejection finds the rejection by these plugins and this gate in the profile.
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
		calls:         map[framework.Event]call{},
	}
	p.rejections[string(key)] = r
	q.rejections = append(q.rejections, r)
	return r
}

// Blame is how many waiting pods a plugin rejected last.
type Blame struct {
	Profile, Plugin string
	Pods            int
}

// Blames counts the pods by the plugins that rejected them, those on their way
// to another attempt included, by profile and plugin: kube-scheduler's
// unschedulable_pods. A plugin that no longer keeps any pod is named with zero.
func (q *Queue) Blames() []Blame {
	counts := map[Blame]int{}
	for _, r := range q.rejections {
		for _, names := range [...][]string{r.unschedulable, r.pending} {
			for _, name := range names {
				counts[Blame{Profile: r.profile.name, Plugin: name}] += r.carried
			}
		}
	}
	blames := make([]Blame, 0, len(counts))
	for b, n := range counts {
		b.Pods = n
		blames = append(blames, b)
	}
	slices.SortFunc(blames, func(a, b Blame) int {
		if c := strings.Compare(a.Profile, b.Profile); c != 0 {
			return c
		}
		return strings.Compare(a.Plugin, b.Plugin)
	})
	return blames
}
