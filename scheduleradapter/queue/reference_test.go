package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// reference is a naive queue: a list of pods that is scanned for each call.
type reference struct {
	s        *script
	pods     []*referencePod // in the order of arrival
	flushed  time.Time
	thinking bool // the reference is calling hints
}

type referencePod struct {
	pod           *nodetable.Pod
	profile       string // of the first version
	place         Place
	timestamp     time.Time
	expiry        time.Time
	unsuccessful  int
	errors        int
	unschedulable map[string]bool
	pending       map[string]bool
	gate          string
	seen          []referenceEvent // while in flight
}

type referenceEvent struct {
	*framework.Occurrence
	forOthers bool
}

func newReference(s *script) *reference { return &reference{s: s, flushed: s.start} }

func (t *reference) get(name string) *referencePod {
	for _, p := range t.pods {
		if p.pod.Object.Name == name {
			return p
		}
	}
	return nil
}

func (t *reference) update(now time.Time, pod *nodetable.Pod, changed framework.Action) {
	p := t.get(pod.Object.Name)
	if p == nil {
		p = &referencePod{pod: pod, profile: pod.Object.Spec.SchedulerName, timestamp: now}
		t.pods = append(t.pods, p)
		t.enqueue(p, now, "now")
		return
	}
	old := p.pod
	p.pod = pod
	for a := framework.Add; a != 0; a = next(a) {
		if changed&a == 0 {
			continue
		}
		o := &framework.Occurrence{Event: framework.Event{Resource: "TargetPod", Action: a}, OldPod: old, Pod: pod}
		switch p.place {
		case InFlight:
			t.record(o, p)
		case Unschedulable, Gated:
			if when := t.worth(p, o); when != "no" {
				t.enqueue(p, now, when)
				return
			}
		}
	}
}

// record records an event for the pods in flight, or for one.
func (t *reference) record(o *framework.Occurrence, only *referencePod) {
	for _, p := range t.pods {
		if p.place != InFlight {
			continue
		}
		p.seen = append(p.seen, referenceEvent{o, only != nil && only != p})
	}
}

func (t *reference) remove(name string) {
	t.pods = slices.DeleteFunc(t.pods, func(p *referencePod) bool { return p.pod.Object.Name == name })
}

func (t *reference) pop(now time.Time) string {
	t.advance(now)
	var best *referencePod
	for _, place := range []Place{Active, Backoff} {
		for _, p := range t.pods {
			if p.place != place || place == Backoff && p.errors > 0 {
				continue
			}
			if best == nil || t.before(p, best, place) {
				best = p
			}
		}
		if best != nil {
			best.place = InFlight
			best.unschedulable, best.pending, best.seen = nil, nil, nil
			return best.pod.Object.Name
		}
	}
	return "nothing"
}

// before expects pods in the order of arrival.
func (t *reference) before(a, b *referencePod, place Place) bool {
	order := 0
	if place == Backoff {
		order = a.expiry.Compare(b.expiry)
	}
	return cmp.Or(order, cmp.Compare(b.pod.Priority, a.pod.Priority), a.timestamp.Compare(b.timestamp)) < 0
}

func (t *reference) permit(e *Entry) {
	if p := t.get(e.Pod.Object.Name); p != nil && t.s.q.Get(e.Pod.UID) == e && p.place == InFlight {
		p.place = Binding
	}
}

func (t *reference) fail(now time.Time, name string, by Rejection) {
	p := t.get(name)
	p.timestamp = now
	p.unschedulable, p.pending = set(by.Unschedulable), set(by.Pending)
	outcome := "no"
	if len(p.unschedulable)+len(p.pending) == 0 {
		p.errors++
		p.backOff(t, p.errors)
		outcome = "after backoff"
	} else {
		p.errors = 0
		p.unsuccessful++
		p.backOff(t, p.unsuccessful)
		if p.place == Binding {
			outcome = "after backoff"
		}
		if p.place == InFlight {
			for _, happened := range p.seen {
				if happened.forOthers {
					continue
				}
				switch t.worth(p, happened.Occurrence) {
				case "now":
					outcome = "now"
				case "after backoff":
					if outcome == "no" {
						outcome = "after backoff"
					}
				}
			}
		}
	}
	if outcome == "no" {
		p.place = Unschedulable
		return
	}
	t.enqueue(p, now, outcome)
}

func (p *referencePod) backOff(t *reference, failures int) {
	p.expiry = time.Time{}
	if t.s.cfg.MaxBackoff == 0 {
		return
	}
	wait := t.s.cfg.InitialBackoff
	for range failures - 1 {
		wait = min(2*wait, t.s.cfg.MaxBackoff)
	}
	p.expiry = p.timestamp.Add(min(wait, t.s.cfg.MaxBackoff)).Truncate(time.Second)
}

func (t *reference) backsOff(p *referencePod, now time.Time) bool {
	return p.expiry != (time.Time{}) && !p.expiry.Before(now.Truncate(time.Second))
}

// includes is framework.Event.Includes, written differently.
func includes(registered, happened framework.Event) bool {
	kinds := []framework.Resource{registered.Resource}
	switch registered.Resource {
	case "*":
		kinds = []framework.Resource{happened.Resource}
	case "Pod":
		kinds = append(kinds, "AssignedPod", "UnscheduledPod", "TargetPod")
	}
	return slices.Contains(kinds, happened.Resource) && registered.Action&happened.Action != 0
}

// worth is whether and when an event moves an unschedulable pod.
func (t *reference) worth(p *referencePod, o *framework.Occurrence) string {
	t.thinking = true
	defer func() { t.thinking = false }()
	var matching []string // plugins whose hints are called
	says := map[string]bool{}
	for plugin, hints := range t.hints(p) {
		for _, h := range hints {
			if !includes(h.Event, o.Event) {
				continue
			}
			matching = append(matching, plugin)
			if h.Hint == nil {
				says[plugin] = true
			} else if hint, err := h.Hint(o, p.pod); hint == framework.Queue || err != nil {
				says[plugin] = true
			}
		}
	}
	if p.place == Gated && !slices.Contains(matching, p.gate) {
		return "no"
	}
	if o.Resource == "*" && o.Action == framework.All {
		return "after backoff"
	}
	answer := "no"
	for plugin := range says {
		if p.pending[plugin] {
			return "now"
		}
		if p.unschedulable[plugin] {
			answer = "after backoff"
		}
	}
	return answer
}

func (t *reference) hints(p *referencePod) map[string][]framework.EventHint {
	hints := map[string][]framework.EventHint{}
	if p.profile == "default" {
		maps.Copy(hints, t.s.hints)
	}
	return hints
}

func (t *reference) enqueue(p *referencePod, now time.Time, when string) {
	p.gate = ""
	if p.profile == "default" {
		p.gate = t.s.gate(p.pod)
	}
	switch {
	case p.gate != "":
		p.place = Gated
		if p.unschedulable == nil {
			p.unschedulable = map[string]bool{}
		}
		p.unschedulable[p.gate] = true
	case when == "after backoff" && t.backsOff(p, now):
		p.place = Backoff
	default:
		p.place = Active
	}
}

func (t *reference) move(now time.Time, o *framework.Occurrence) {
	interesting := o.Resource == "*" && o.Action == framework.All
	for _, hints := range t.s.hints {
		for _, h := range hints {
			interesting = interesting || includes(h.Event, o.Event)
		}
	}
	if !interesting {
		return
	}
	t.record(o, nil)
	for _, p := range t.pods {
		if p.place == Unschedulable || p.place == Gated {
			if when := t.worth(p, o); when != "no" {
				t.enqueue(p, now, when)
			}
		}
	}
}

func (t *reference) activate(now time.Time, name string) {
	p := t.get(name)
	if p == nil {
		return
	}
	switch p.place {
	case Unschedulable, Gated, Backoff:
		t.enqueue(p, now, "now")
	case InFlight:
		t.record(&framework.Occurrence{Event: framework.ForceActivate}, p)
	}
}

func (t *reference) advance(now time.Time) {
	flush := t.flushed
	for !flush.Add(30 * time.Second).After(now) {
		flush = flush.Add(30 * time.Second)
	}
	if flush.After(t.flushed) {
		t.flushed = flush
		patience := cmp.Or(t.s.cfg.MaxUnschedulable, 5*time.Minute)
		for _, p := range t.pods {
			if (p.place == Unschedulable || p.place == Gated) && flush.Sub(p.timestamp) > patience {
				if when := t.worth(p, &framework.Occurrence{Event: framework.UnschedulableTimeout}); when != "no" {
					t.enqueue(p, now, when)
				}
			}
		}
	}
	for _, p := range t.pods {
		if p.place == Backoff && !t.backsOff(p, now) {
			p.place = Active
		}
	}
}

// differs compares queue and reference.
func (t *reference) differs(q *Queue, now time.Time) error {
	if len(q.entries) != len(t.pods) {
		return fmt.Errorf("%d pods, the reference has %d", len(q.entries), len(t.pods))
	}
	recorded := 0
	for _, p := range t.pods {
		e := q.Get(p.pod.UID)
		if e == nil {
			return fmt.Errorf("%s is lost", p.pod.UID)
		}
		if e.place != p.place {
			return fmt.Errorf("%s is %v, to the reference %v", e.Pod.UID, e.place, p.place)
		}
		if e.Pod != p.pod || !e.Timestamp.Equal(p.timestamp) || e.Unsuccessful != p.unsuccessful || e.Errors != p.errors || !e.Backoff.Equal(p.expiry) {
			return fmt.Errorf("%s has another history to the reference: %+v, %+v", e.Pod.UID, e, p)
		}
		by := e.Rejection()
		if !maps.Equal(set(by.Unschedulable), p.unschedulable) || !maps.Equal(set(by.Pending), p.pending) {
			return fmt.Errorf("%s was rejected by %v, to the reference by %v and %v", e.Pod.UID, by, p.unschedulable, p.pending)
		}
		if p.place == InFlight {
			recorded = max(recorded, len(p.seen))
		}
	}
	if kept(q) != recorded {
		return fmt.Errorf("%d events recorded, the reference needs %d", kept(q), recorded)
	}
	return nil
}

func set(names []string) map[string]bool {
	m := map[string]bool{}
	for _, name := range names {
		m[name] = true
	}
	return m
}

// kept is the number of events that are kept for the pods in flight.
func kept(q *Queue) (n int) {
	for _, events := range q.InFlightEvents() {
		n += events
	}
	return n
}
