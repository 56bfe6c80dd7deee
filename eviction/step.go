package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Step is what is done about a shortage of memory before a pod is evicted.
type Step uint8

// The steps.
const (
	Warn Step = iota
	ReclaimMemory
	Throttle
	RestartContainer
	Resize
	numSteps
)

// stepRule is how a step on containers is decided: each has a cause, a budget and an end.
type stepRule struct {
	name string
	// cause is why the step is taken on a container, and the same with figures; taken says that it is in
	// effect there. It is nil for a step on pods, about which reclaimMemory and throttle decide.
	cause func(st *State, cfg *Config, in *Input, c *Candidate, container int, taken bool) (cause Cause, figures string)
	// interval is the least time between two on one container, and hold how long one stays in
	// effect without a cause.
	interval, hold func(*Config) time.Duration
	// amount is the Bytes of the step after those before it in the pass, or zero and why there are none; nil where it has
	// none.
	amount func(st *State, cfg *Config, in *Input, c *Candidate, container int, before []StepAction) (bytes int64, because string)
	// prospect says whether the step may be taken on a pod, and when, or why not; nothing where it is not
	// configured.
	prospect func(st *State, cfg *Config, in *Input, c *Candidate) (may bool, because string)
}

var steps = [numSteps]stepRule{
	Warn: {
		name:     "warn",
		cause:    (*State).warnCause,
		interval: func(c *Config) time.Duration { return c.Warnings.Interval },
		hold:     func(c *Config) time.Duration { return c.Warnings.Lead },
		prospect: (*State).warnProspect,
	},
	ReclaimMemory: {name: "reclaim", prospect: (*State).reclaimProspect},
	Throttle:      {name: "throttle", prospect: (*State).throttleProspect},
	Resize: {
		name:     "resize",
		cause:    (*State).resizeCause,
		interval: func(c *Config) time.Duration { return c.Resizes.Interval },
		hold:     func(*Config) time.Duration { return resizeHold },
		amount:   (*State).resizeTo,
		prospect: (*State).resizeProspect,
	},
	// In place of an eviction: see restart.
	RestartContainer: {name: "restart", prospect: (*State).restartProspect},
}

func (s Step) String() string { return steps[s].name }

// ParseStep reads what String writes.
func ParseStep(text string) (Step, error) {
	for s := range numSteps {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, fmt.Errorf("no step before an eviction is called %q", text)
}

// Cause is why a step is taken.
type Cause struct {
	Kind CauseKind
	// Signal of the threshold; not that of a ContainerLimit.
	Signal Signal
}

// CauseKind is the kind of a Cause.
type CauseKind uint8

// The kinds. SoftThreshold: the signal is below it. HardThreshold: it is below, or will be soon.
// ContainerLimit: the container uses its memory up soon.
const (
	NoCause CauseKind = iota
	SoftThreshold
	HardThreshold
	ContainerLimit
)

// causeKinds are the names in documents.
var causeKinds = [...]string{"", "soft", "hard", "limit"}

func (k CauseKind) String() string { return causeKinds[k] }

// String is the kind, and the signal if it has one: "soft memory.available".
func (c Cause) String() string {
	if c.Kind == SoftThreshold || c.Kind == HardThreshold {
		return causeKinds[c.Kind] + " " + c.Signal.String()
	}
	return causeKinds[c.Kind]
}

// parseCause reads what String writes.
func parseCause(text string) (Cause, bool) {
	for kind := SoftThreshold; kind <= ContainerLimit; kind++ {
		for s := range Signal(NumSignals) {
			if c := (Cause{kind, s}); c.String() == text {
				if kind == ContainerLimit {
					c.Signal = 0
				}
				return c, true
			}
		}
	}
	return Cause{}, false
}

// StepTaken is a step on a container, or a pod, in effect or not long ago.
type StepTaken struct {
	Step      Step
	UID       types.UID
	Container string // "" for a step on a pod
	Cause     Cause
	// Bytes were reclaimed in the round of ReclaimMemory; of Throttle they are memory.high, zero until that is set; of
	// Resize they are the limit that was asked for, zero where that was not raised.
	Bytes int64
	// Since is when it came into effect, Last when it was last taken, and Clear since when it has no
	// cause; zero while it has.
	Since, Last, Clear time.Time
	// Over: it is not in effect any more.
	Over bool
}

// StepAction is a step to take on a container, or a pod, or to end there.
type StepAction struct {
	Step Step
	// Pod is nil where ReclaimMemory asks to measure the memory of all pods.
	Pod       *Pod
	Container string // "" for a step on a pod
	// Over says that the step ends.
	Over  bool
	Cause Cause
	// Bytes to reclaim, or that were where that is over, or that the pod may grow by before it is throttled.
	Bytes int64
	// For is how long the step lasts at most; zero where it has no such end.
	For time.Duration
	// Because says why, with figures.
	Because string
}

// StepOutcome is what has become of a StepAction on a pod.
type StepOutcome struct {
	Step Step
	// UID of its pod; empty for a measurement.
	UID types.UID
	// Bytes that were reclaimed, or memory.high; zero once a throttle has ended.
	Bytes int64
	// Less says that the kernel found less to reclaim than it was asked for.
	Less bool
	// Pods are all that could be measured, or that of the step; none where it has ended.
	Pods []PodMemory
	// Refused says why the step is not in effect.
	Refused string
}

// StepsInEffect are the steps in effect, those on pods last; of restarts those that are within the back-off.
func (st *State) StepsInEffect() []StepTaken {
	all := slices.DeleteFunc(slices.Clone(st.Steps), func(t StepTaken) bool { return t.Over })
	for i := range st.Restarts {
		if r := &st.Restarts[i]; !r.Failed {
			all = append(all, StepTaken{Step: RestartContainer, UID: r.UID, Container: r.Container, Cause: cause(r.Signal, r.Hard), Since: r.At, Last: r.At})
		}
	}
	if r := &st.Round; r.Pod != "" {
		all = append(all, StepTaken{Step: ReclaimMemory, UID: r.Pod, Since: r.Asked, Last: r.Asked, Bytes: r.Bytes})
	}
	if t := &st.Throttled; t.Pod != nil {
		all = append(all, StepTaken{Step: Throttle, UID: t.Pod.UID, Since: t.Since, Last: t.Since, Bytes: t.High})
	}
	return all
}

// StepsConfigured says whether any step may be taken on the pod.
func (c *Config) StepsConfigured(p *Pod) bool { return c.Warnings.of(p) || c.Resizes.of(p) }

// unknownFor is how long after the last time a step is kept of a pod that is not known: after a
// start, pods become known one by one.
const unknownFor = 10 * time.Minute

// takeSteps decides about the steps on all containers. Those of pods that have ended end with the pod. Those of victims
// in flight stay as they are: where a container is restarted, or the eviction is withdrawn, the pod continues. What it
// is given is allocated: Decide gives it copies.
func takeSteps(cfg *Config, st State, in Input) (State, Decision) {
	var d Decision
	before := st.Steps
	var after []StepTaken
	known := map[types.UID]bool{}
	for i := range in.Candidates {
		c := &in.Candidates[i]
		known[c.Pod.UID] = true
		if c.Pod.Terminal {
			continue
		}
		if st.indexInFlight(c.Pod.UID) >= 0 {
			after = append(after, ofPod(before, c.Pod.UID)...)
			continue
		}
		for container := range c.Pod.Containers {
			for step := range steps {
				if steps[step].cause == nil {
					continue
				}
				if t, keep := st.takeStep(cfg, &in, Step(step), c, container, &d); keep {
					after = append(after, t)
				}
			}
		}
	}
	for _, t := range before {
		if !known[t.UID] && in.Now.Sub(t.Last) < unknownFor {
			after = append(after, t)
		}
	}
	// The order of the candidates is not that of a recording.
	slices.SortStableFunc(d.Steps, func(a, b StepAction) int { return strings.Compare(a.Pod.String(), b.Pod.String()) })
	slices.SortStableFunc(after, func(a, b StepTaken) int { return cmp.Compare(a.UID, b.UID) })
	st.Steps = after
	return st, d
}

// ofPod are the steps of a pod.
func ofPod(steps []StepTaken, uid types.UID) (all []StepTaken) {
	for _, t := range steps {
		if t.UID == uid {
			all = append(all, t)
		}
	}
	return all
}

// step adds a step on a pod to the decision. Where nothing is taken but ended, it allocates nothing: a hard
// threshold may be crossed.
func (d *Decision) step(in *Input, s StepAction) {
	if d.Steps == nil {
		d.Steps = in.Buffers.forSteps()
	}
	d.Steps = append(d.Steps, s)
}

// cause is that of a step for a threshold.
func (t *Threshold) cause() Cause { return cause(t.Signal, t.Hard()) }

func cause(s Signal, hard bool) Cause {
	if hard {
		return Cause{HardThreshold, s}
	}
	return Cause{SoftThreshold, s}
}

// takeStep decides about a step on a container. keep says whether it is to be remembered.
func (st *State) takeStep(cfg *Config, in *Input, step Step, c *Candidate, container int, d *Decision) (t StepTaken, keep bool) {
	rule, name := &steps[step], c.Pod.Containers[container].Name
	at := slices.IndexFunc(st.Steps, func(t StepTaken) bool { return t.Step == step && t.UID == c.Pod.UID && t.Container == name })
	if at >= 0 {
		t = st.Steps[at]
	}
	inEffect := at >= 0 && !t.Over
	cause, because := rule.cause(st, cfg, in, c, container, inEffect)
	due := at < 0 || in.Now.Sub(t.Last) >= rule.interval(cfg)
	act := func() {
		a := StepAction{Step: step, Pod: c.Pod, Container: name, Over: t.Over, Cause: t.Cause, Because: because}
		if rule.amount != nil && !t.Over {
			var why string
			if a.Bytes, why = rule.amount(st, cfg, in, c, container, d.Steps); why != "" {
				a.Because += "; " + why
			}
			t.Bytes = a.Bytes
		}
		d.Steps = append(d.Steps, a)
	}
	switch {
	case cause.Kind == NoCause && !inEffect:
		return t, !due
	case cause.Kind == NoCause:
		if t.Clear.IsZero() {
			t.Clear = in.Now
		}
		hold := rule.hold(cfg)
		if !cfg.StepsConfigured(c.Pod) {
			because, hold = "it is not configured any more", 0
		} else {
			because = "it has had no cause for " + hold.String()
		}
		if in.Now.Sub(t.Clear) >= hold {
			t.Over = true
			act()
		}
	case inEffect:
		t.Cause, t.Clear = cause, time.Time{}
		if due {
			t.Last = in.Now
			act()
		}
	case due:
		t = StepTaken{Step: step, UID: c.Pod.UID, Container: name, Cause: cause, Since: in.Now, Last: in.Now}
		act()
	}
	return t, true
}
