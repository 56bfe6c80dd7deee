package queue

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// hinted is the object of a scripted event: the pods for which all hints return
// Queue.
type hinted []string

type scriptProfile struct{ s *script }

// PreEnqueue gates pods with scheduling gates, and those of the command gate.
func (p scriptProfile) PreEnqueue(pod *nodetable.Pod) framework.Status {
	gate := p.s.gate(pod)
	if p.s.traces {
		p.s.printf("gates of %s: %q\n", pod.UID, gate)
	}
	if gate == "" {
		return framework.Status{}
	}
	return framework.Status{Code: framework.UnschedulableAndUnresolvable, Plugin: gate}
}

func (p scriptProfile) Hints() map[string][]framework.EventHint { return p.s.hints }

// script runs commands, one a line, against a queue and the reference, and
// writes down what the queue did:
//
//	backoff INITIAL MAX | patience DURATION    before anything else
//	hint PLUGIN EVENT [always|fails]           without a word: asks whom the event helps
//	trace                                      write down what gates and hints are asked
//	at TIME                                    since the start; never back
//	add POD [prio N] [gated] [as PROFILE]
//	update POD ACTION [prio N] [gated]
//	gate POD PLUGIN | ungate POD               a gate outside of the pod
//	delete POD | permit POD | activate POD...
//	pop | advance | next | show | counts
//	fail POD [PLUGIN...] [pending PLUGIN...]
//	event EVENT [POD...]                       whom it helps
type script struct {
	out       strings.Builder
	cfg       Config
	hints     map[string][]framework.EventHint
	gates     map[string]string
	start     time.Time
	now       time.Time
	traces    bool
	q         *Queue
	reference *reference
	handles   map[string]*Entry // entries by pod as last popped
}

func newScript() *script {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &script{gates: map[string]string{}, hints: map[string][]framework.EventHint{}, start: start, now: start, handles: map[string]*Entry{}}
	s.cfg = Config{
		InitialBackoff: time.Second,
		MaxBackoff:     10 * time.Second,
		Less:           byPriority,
		Moved: func(e *Entry, from Place, why framework.Event) {
			s.printf("%s: %v -> %v", e.Pod.UID, from, e.Place())
			if gate := e.Gate; !gate.OK() {
				s.printf(" by %s", gate.Plugin)
			}
			if why != (framework.Event{}) {
				s.printf(", %s", why)
			}
			s.printf("\n")
		},
	}
	return s
}

// byPriority is PrioritySort.
func byPriority(a, b framework.Queued) bool {
	if a.Pod.Priority != b.Pod.Priority {
		return a.Pod.Priority > b.Pod.Priority
	}
	return a.Timestamp.Before(b.Timestamp)
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format, args...) }

// gate is the plugin that gates a pod.
func (s *script) gate(p *nodetable.Pod) string {
	if len(p.Object.Spec.SchedulingGates) > 0 {
		return "SchedulingGates"
	}
	return s.gates[p.Object.Name]
}

// begin makes the queue after the configuration.
func (s *script) begin() {
	if s.q != nil {
		return
	}
	s.cfg.Profiles = map[string]Profile{"default": scriptProfile{s}}
	s.q = New(s.start, s.cfg)
	s.reference = newReference(s)
}

// run runs a script and returns the transcript; the error is a difference between
// queue and reference, or a violated invariant.
func (s *script) run(text string) (string, error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			s.printf("%s\n", line)
			continue
		}
		s.printf("> %s\n", line)
		if err := s.command(strings.Fields(line)); err != nil {
			s.printf("error: %v\n", err)
		}
		if s.q == nil {
			continue
		}
		if err := errors.Join(s.check(), s.reference.differs(s.q, s.now)); err != nil {
			return s.out.String(), fmt.Errorf("after %q: %w", line, err)
		}
	}
	return s.out.String(), nil
}

func (s *script) command(words []string) error {
	verb, args := words[0], words[1:]
	if set, ok := s.settings()[verb]; ok {
		if s.q != nil {
			return errors.New("too late")
		}
		if len(args) == 0 {
			return errors.New("what?")
		}
		return set(args)
	}
	s.begin()
	if do, ok := s.plain()[verb]; ok {
		return do()
	}
	do, ok := s.verbs()[verb]
	if !ok {
		return errors.New("unknown command")
	}
	if len(args) == 0 {
		return errors.New("what?")
	}
	return do(args[0], args[1:])
}

func (s *script) settings() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"backoff": func(args []string) error {
			longest, err := duration(args[len(args)-1])
			if err != nil {
				return err
			}
			s.cfg.MaxBackoff = longest
			s.cfg.InitialBackoff, err = duration(args[0])
			return err
		},
		"patience": func(args []string) (err error) {
			s.cfg.MaxUnschedulable, err = duration(args[0])
			return err
		},
		"hint": func(args []string) error {
			if len(args) < 2 {
				return errors.New("which event?")
			}
			on, err := event(args[1])
			if err != nil {
				return err
			}
			s.hints[args[0]] = append(s.hints[args[0]], framework.EventHint{Event: on, Hint: s.ask(args[0], strings.Join(args[2:], " "))})
			return nil
		},
	}
}

// ask makes a hint: nil, one that fails, or one that returns Queue if the event
// helps the pod.
func (s *script) ask(plugin, mode string) func(*framework.Occurrence, *nodetable.Pod) (framework.Hint, error) {
	if mode == "always" {
		return nil
	}
	return func(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
		hint, err := framework.QueueSkip, error(nil)
		if mode == "fails" {
			err = errors.New("no idea")
		} else if helps(o, pod) {
			hint = framework.Queue
		}
		if s.traces && !s.reference.thinking {
			s.printf("%s asked about %s: %s\n", plugin, pod.UID, [...]string{"skip", "queue"}[hint])
		}
		return hint, err
	}
}

// helps reports whether an event helps a pod; its own changes do.
func helps(o *framework.Occurrence, pod *nodetable.Pod) bool {
	if object, ok := o.Object.(hinted); ok {
		return slices.Contains(object, pod.Object.Name)
	}
	return o.Pod != nil && o.Pod.UID == pod.UID
}

func (s *script) plain() map[string]func() error {
	return map[string]func() error{
		"trace":   func() error { s.traces = true; return nil },
		"advance": func() error { s.q.Flush(s.now); s.reference.advance(s.now); return nil },
		"show":    func() error { s.show(); return nil },
		"counts": func() error {
			var lines []string
			for arrival, n := range s.q.Arrivals() {
				lines = append(lines, fmt.Sprintf("%v by %v: %d\n", arrival.To, arrival.By, n))
			}
			slices.Sort(lines)
			s.printf("%s", strings.Join(lines, ""))
			return nil
		},
		"pop": func() error {
			e := s.q.Pop(s.now)
			name := "nothing"
			if e != nil {
				name = e.Pod.Object.Name
				s.handles[name] = e
				s.printf("%s: attempt %d\n", name, e.Attempts)
			} else {
				s.printf("nothing\n")
			}
			if other := s.reference.pop(s.now); other != name {
				return fmt.Errorf("the reference pops %s", other)
			}
			return nil
		},
		"next": func() error {
			if at, ok := s.q.Next(s.now); ok {
				s.printf("%v\n", at.Sub(s.start))
			} else {
				s.printf("never\n")
			}
			return nil
		},
	}
}

func (s *script) verbs() map[string]func(pod string, args []string) error {
	return map[string]func(string, []string) error{
		"at": func(at string, _ []string) error {
			d, err := duration(at)
			if err != nil || s.start.Add(d).Before(s.now) {
				return errors.New("no time to go to")
			}
			s.now = s.start.Add(d)
			return nil
		},
		"add": func(name string, args []string) error {
			pod, err := describe(name, args)
			if err == nil {
				s.q.Add(s.now, pod)
				s.reference.update(s.now, pod, 0)
			}
			return err
		},
		"update": func(name string, args []string) error {
			if len(args) == 0 {
				return errors.New("what changed?")
			}
			changed, err := action(args[0])
			if err != nil {
				return err
			}
			pod, err := describe(name, args[1:])
			if err == nil {
				s.q.Update(s.now, pod, changed)
				s.reference.update(s.now, pod, changed)
			}
			return err
		},
		"gate": func(name string, args []string) error {
			s.gates[name] = strings.Join(args, "")
			return nil
		},
		"ungate": func(name string, _ []string) error { delete(s.gates, name); return nil },
		"delete": func(name string, _ []string) error { s.q.Delete(types.UID(name)); s.reference.remove(name); return nil },
		"activate": func(name string, args []string) error {
			for _, name := range append([]string{name}, args...) {
				s.q.Activate(s.now, types.UID(name))
				s.reference.activate(s.now, name)
			}
			return nil
		},
		"permit": func(name string, _ []string) error {
			if e := s.handles[name]; e != nil {
				s.q.Permit(e)
				s.reference.permit(e)
			}
			return nil
		},
		"fail": func(name string, args []string) error {
			by := Rejection{Unschedulable: args}
			if i := slices.Index(args, "pending"); i >= 0 {
				by = Rejection{Unschedulable: args[:i], Pending: args[i+1:]}
			}
			if e := s.handles[name]; e != nil {
				out := e.Place() == InFlight || e.Place() == Binding
				s.q.Fail(s.now, e, by)
				if out {
					s.reference.fail(s.now, name, by)
				}
			}
			return nil
		},
		"event": func(name string, args []string) error {
			ev, err := event(name)
			if err == nil {
				o := &framework.Occurrence{Event: ev, Object: hinted(args)}
				s.q.MoveAllToActiveOrBackoff(s.now, o)
				s.reference.move(s.now, o)
			}
			return err
		},
	}
}

// show prints each place in order, the recorded events and the rejectors.
func (s *script) show() {
	list := func(name string, entries []*Entry, less func(a, b *Entry) bool) {
		if len(entries) == 0 {
			return
		}
		s.printf("%s:", name)
		for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b *Entry) int {
			if less(a, b) {
				return -1
			}
			return 1
		}) {
			s.printf(" %s", e.Pod.UID)
			if e.place == Backoff {
				s.printf("(%v)", e.Backoff.Sub(s.start))
			}
		}
		s.printf("\n")
	}
	list("active", s.q.active.items, s.q.active.less)
	list("backoff", s.q.backoff.items, s.q.backoff.less)
	list("backoff after errors", s.q.errors.items, s.q.errors.less)
	for _, place := range []Place{Unschedulable, Gated, InFlight, Binding} {
		var there []*Entry
		for _, e := range s.q.Entries() {
			if e.Place() == place {
				there = append(there, e)
			}
		}
		list(place.String(), there, s.q.errors.less)
	}
	if n := kept(s.q); n > 0 {
		s.printf("recorded: %d\n", n)
	}
	for _, b := range s.q.UnschedulablePods() {
		if b.Pods > 0 {
			s.printf("rejected by %s: %d\n", b.Plugin, b.Pods)
		}
	}
}

// describe makes a pod from words.
func describe(name string, words []string) (*nodetable.Pod, error) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{SchedulerName: "default", Priority: new(int32)},
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if word == "gated" {
			pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}}
			continue
		}
		if len(words) == 0 {
			return nil, fmt.Errorf("%s what?", word)
		}
		switch word {
		case "prio":
			n, err := strconv.ParseInt(words[0], 10, 32)
			if err != nil {
				return nil, err
			}
			*pod.Spec.Priority = int32(n)
		case "as":
			pod.Spec.SchedulerName = words[0]
		default:
			return nil, fmt.Errorf("%s?", word)
		}
		words = words[1:]
	}
	return nodetable.NewPod(pod), nil
}

func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && (d < 0 || d > 24*time.Hour) {
		err = errors.New("out of range")
	}
	return d, err
}

// event parses Resource/Action.
func event(text string) (framework.Event, error) {
	i := strings.LastIndex(text, "/")
	if i < 0 {
		return framework.Event{}, errors.New("resource/action?")
	}
	a, err := action(text[i+1:])
	return framework.Event{Resource: framework.Resource(text[:i]), Action: a}, err
}

// action parses actions joined by "|".
func action(text string) (framework.Action, error) {
	var all framework.Action
	for name := range strings.SplitSeq(text, "|") {
		a := framework.All
		for ; a != 0 && a.String() != name; a = next(a) {
		}
		if a == 0 {
			return 0, fmt.Errorf("%q is no action", name)
		}
		all |= a
	}
	return all, nil
}

// next iterates over All, Update and each action.
func next(a framework.Action) framework.Action {
	switch a {
	case framework.All:
		return framework.Update
	case framework.Update:
		return framework.Add
	}
	return a << 1 & framework.All
}
