package simulate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// Step is what one pass came to, in the field order of its JSON form.
type Step struct {
	At            string          `json:"at"`
	ThresholdsMet []Threshold     `json:"thresholdsMet"`
	Conditions    map[string]bool `json:"conditions"`
	Taints        []string        `json:"taints"`
	NodeReclaim   []string        `json:"nodeReclaim"`
	Ranking       []string        `json:"ranking"`
	Evictions     []Eviction      `json:"evictions"`
	FailedKills   []string        `json:"failedKills,omitempty"`
	InFlight      []string        `json:"inFlight,omitempty"`

	// Changes since the step before, and why pods that would have gone earlier
	// were passed over, for people.
	Changes    []string `json:"-"`
	PassedOver []string `json:"-"`
}

// Threshold is one that acts.
type Threshold struct {
	Signal    string `json:"signal"`
	Kind      string `json:"kind"`
	Quantity  string `json:"quantity"`
	Available string `json:"available"`
}

// Eviction is a pod ended in the pass.
type Eviction struct {
	Pod                string            `json:"pod"`
	Signal             string            `json:"signal"`
	GracePeriodSeconds int64             `json:"gracePeriodSeconds"`
	Reason             string            `json:"reason"`
	Message            string            `json:"message"`
	DisruptionTarget   bool              `json:"disruptionTarget"`
	Annotations        map[string]string `json:"annotations"`

	// Because tells why the pod went before the next candidate, for people.
	Because string `json:"-"`
}

// runner is the node that a scenario plays on.
type runner struct {
	*Scenario
	state eviction.State
	alive []*eviction.Pod // in the order of appearance
	usage map[string]*stats.Pod
	gone  map[types.UID]time.Duration // pods being killed, and when they are gone
}

// epoch is the instant of 0s. Any will do that is not the zero time.
var epoch = time.Unix(0, 0)

// Run plays the scenario.
func (s *Scenario) Run() []Step {
	r := runner{Scenario: s, alive: slices.Clone(s.first), usage: map[string]*stats.Pod{}, gone: map[types.UID]time.Duration{}}
	steps := make([]Step, 0, len(s.steps))
	for i := range s.steps {
		steps = append(steps, r.step(&s.steps[i]))
	}
	return steps
}

// step is one pass: what has ended and appeared since, then calls of Decide at
// one instant, each fed the outcome of the one before.
func (r *runner) step(s *step) Step {
	in := eviction.Input{Now: epoch.Add(s.at), Pass: s.pass, Signals: s.signals, Sampled: true, Strangers: s.strangers, Reclaims: s.ended}
	for signal, age := range s.ages {
		in.Signals[signal].Time = in.Now.Add(-age)
	}
	in.Outcomes = r.endings(s)
	for _, pod := range s.add {
		delete(r.usage, pod.String())
	}
	r.alive = append(r.alive, s.add...)
	maps.Copy(r.usage, s.usage)
	for _, pod := range r.alive {
		in.Candidates = append(in.Candidates, eviction.Candidate{Pod: pod, Usage: r.usage[pod.String()]})
	}

	out := Step{At: s.at.String(), ThresholdsMet: []Threshold{}, NodeReclaim: []string{}, Ranking: []string{}, Evictions: []Eviction{}}
	before := r.state
	var d eviction.Decision
	for again := true; again; in.Pass = eviction.Continue {
		r.state, d = eviction.Decide(&r.config, r.state, in)
		d.Explain()
		if in.Pass != eviction.Continue {
			r.report(&out, d.Met)
			out.Changes = r.changes(&before, &in, d.Met)
		}
		in.Outcomes = r.act(s, &out, &d)
		in.Reclaims = r.reclaim(s, &d, &in.Signals)
		again = len(d.Reclaim) > 0 || len(in.Outcomes) > 0
	}
	return out
}

// reclaim plays what was asked for: it goes on, or frees what the step says.
func (r *runner) reclaim(s *step, d *eviction.Decision, signals *eviction.Observations) []eviction.ReclaimOutcome {
	if len(d.Reclaim) > 0 && slices.Contains(s.goOn, d.ReclaimFor) {
		return []eviction.ReclaimOutcome{{For: d.ReclaimFor}}
	}
	for _, step := range d.Reclaim {
		for signal, amount := range s.reclaims[step] {
			if o := &signals[signal]; o.Available.IsKnown() {
				o.Available = stats.Known(o.Available.Or(0) + amount)
			}
		}
	}
	return nil
}

// endings takes the pods away that have ended: by themselves, killed, or followed
// by another pod of their name.
func (r *runner) endings(s *step) []eviction.Outcome {
	var outcomes []eviction.Outcome
	r.alive = slices.DeleteFunc(r.alive, func(pod *eviction.Pod) bool {
		end, killed := r.gone[pod.UID]
		followed := slices.ContainsFunc(s.add, func(next *eviction.Pod) bool { return next.String() == pod.String() })
		if followed || slices.Contains(s.remove, pod.String()) || killed && end <= s.at {
			delete(r.gone, pod.UID)
			outcomes = append(outcomes, eviction.Outcome{UID: pod.UID})
			return true
		}
		return false
	})
	return outcomes
}

// report says how the node stands once the pass has been opened.
func (r *runner) report(out *Step, met []eviction.Met) {
	for _, m := range met {
		out.ThresholdsMet = append(out.ThresholdsMet, Threshold{m.Signal.String(), m.Kind(), m.Signal.Quantity(m.Required), m.Signal.Quantity(m.Available)})
	}
	var raised nodestatus.Raised
	out.Conditions, out.Taints = map[string]bool{}, []string{}
	for c := range raised {
		raised[c] = r.state.Pressure[c].Reported
		out.Conditions[eviction.Condition(c).String()] = raised[c]
	}
	out.Taints = append(out.Taints, nodestatus.TaintNames(nodestatus.Native.Taints(raised))...)
	for _, f := range r.state.InFlight {
		i := slices.IndexFunc(r.alive, func(pod *eviction.Pod) bool { return pod.UID == f.UID })
		if _, killing := r.gone[f.UID]; killing {
			out.InFlight = append(out.InFlight, r.alive[i].String())
		}
	}
}

// act plays what was decided and returns the kills that failed.
func (r *runner) act(s *step, out *Step, d *eviction.Decision) []eviction.Outcome {
	for _, step := range d.Reclaim {
		if name := step.String(); !slices.Contains(out.NodeReclaim, name) {
			out.NodeReclaim = append(out.NodeReclaim, name)
		}
	}
	if len(d.Ranking) > 0 {
		out.rank(d)
	}
	var failed []eviction.Outcome
	for _, e := range d.Evictions {
		name := e.Pod.String()
		if slices.Contains(s.killFails, name) {
			out.FailedKills = append(out.FailedKills, name)
			failed = append(failed, eviction.Outcome{UID: e.Pod.UID, Failed: true})
			continue
		}
		r.gone[e.Pod.UID] = s.at + s.kills[name]
		out.Evictions = append(out.Evictions, Eviction{
			Pod: name, Signal: e.Signal.String(), GracePeriodSeconds: e.GracePeriodSeconds,
			Reason: eviction.ReasonEvicted, Message: e.Message, DisruptionTarget: e.DisruptionTarget,
			Annotations: e.Annotations, Because: e.Because,
		})
	}
	return failed
}

// rank lists the order of victims, protected pods left out, and why those
// before the victim stay.
func (s *Step) rank(d *eviction.Decision) {
	s.Ranking, s.PassedOver = []string{}, nil
	chosen := false
	for i := range d.Ranking {
		ranked := &d.Ranking[i]
		chosen = chosen || len(d.Evictions) > 0 && ranked.Pod == d.Evictions[0].Pod
		if why := ranked.Exempt(); why != "" && !chosen {
			s.PassedOver = append(s.PassedOver, fmt.Sprintf("%v (%s)", ranked.Pod, why))
		}
		if ranked.Pod.Protection == "" {
			s.Ranking = append(s.Ranking, ranked.Pod.String())
		}
	}
}
