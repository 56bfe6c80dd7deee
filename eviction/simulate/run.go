package simulate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// Step is the result of one pass, in the field order of its JSON form.
type Step struct {
	At            string          `json:"at"`
	ThresholdsMet []Threshold     `json:"thresholdsMet"`
	Conditions    map[string]bool `json:"conditions"`
	Taints        []string        `json:"taints"`
	NodeReclaim   []string        `json:"nodeReclaim"`
	Ranking       []string        `json:"ranking"`
	Evictions     []Eviction      `json:"evictions"`
	Restarts      []Restart       `json:"restarts,omitempty"`
	FailedKills   []string        `json:"failedKills,omitempty"`
	InFlight      []string        `json:"inFlight,omitempty"`
	EndAgain      []string        `json:"endAgain,omitempty"`
	// Before are the steps before evictions that are taken, or end, in the pass.
	Before []nodestatus.Step `json:"before,omitempty"`

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

	// Because says why the pod ranks before the next candidate, for people, and Grace
	// is the time that it has before SIGKILL.
	Because string        `json:"-"`
	Grace   time.Duration `json:"-"`
}

// Restart is a container ended in the pass, for a kubelet to start it again.
type Restart struct {
	Pod                string `json:"pod"`
	Container          string `json:"container"`
	Signal             string `json:"signal"`
	GracePeriodSeconds int64  `json:"gracePeriodSeconds"`
	// Grace is the time before SIGKILL.
	Grace   string `json:"grace"`
	Message string `json:"message"`

	// Because is as of Eviction.
	Because string `json:"-"`
}

// runner is the node of a scenario. It implements eviction.Node.
type runner struct {
	*Scenario
	driver eviction.Driver
	alive  []*eviction.Pod // in the order of appearance
	usage  map[string]usage
	gone   map[types.UID]time.Duration // pods being killed, and when they are gone
	ended  map[types.UID]bool          // victims that have ended as reported
	step   *step
}

// epoch is the instant of 0s. Any will do that is not the zero time.
var epoch = time.Unix(0, 0)

// atEnd is when a pod is gone whose end is reported.
const atEnd = time.Duration(math.MaxInt64)

// Run runs the scenario.
func (s *Scenario) Run() []Step {
	r := runner{Scenario: s, alive: slices.Clone(s.first), usage: map[string]usage{}, gone: map[types.UID]time.Duration{}, ended: map[types.UID]bool{}}
	r.driver.Config, r.driver.Node = &s.config, &r
	steps := make([]Step, 0, len(s.steps))
	for i := range s.steps {
		r.step = &s.steps[i]
		steps = append(steps, r.play(r.step))
	}
	return steps
}

// play is one pass, after what has ended and appeared since the one before.
func (r *runner) play(s *step) Step {
	in := eviction.Input{
		Now: epoch.Add(s.at), Pass: s.pass, Signals: s.signals, TasksLeft: s.tasksLeft, VictimUsage: s.victims, Reclaims: s.reclaimed, Restarted: s.restarted, Arrived: s.arrived,
		StepOutcomes: s.stepOutcomes, Fastest: s.fastest,
		UnknownPods: eviction.Unasked, DiskScans: s.diskScan != nil,
	}
	if s.state != nil {
		r.driver.State = s.state.Restore(&r.config, in.Now, 0)
	}
	for signal, age := range s.ages {
		in.Signals[signal].Time = in.Now.Add(-age)
		if last := r.driver.State.Observed[signal]; s.repeated[signal] && !last.IsZero() {
			in.Signals[signal].Time = last
		}
	}
	if s.diskScan != nil && s.diskScan.Age != nil {
		in.ScannedSince = in.Now.Add(-s.diskScan.Age.Duration)
	}
	in.Outcomes = r.endings(s, in.Now)
	for _, pod := range s.add {
		delete(r.usage, pod.String())
	}
	r.alive = append(r.alive, s.add...)
	maps.Copy(r.usage, s.usage)
	for _, pod := range r.alive {
		if _, measured := s.usage[pod.String()]; measured { // its processes are back
			delete(r.ended, pod.UID)
		}
	}
	for _, pod := range s.restarted {
		delete(r.ended, pod.UID)
	}
	in.Candidates = r.candidates(s.pass == eviction.Watch)

	out := Step{At: s.at.String(), ThresholdsMet: []Threshold{}, NodeReclaim: []string{}, Ranking: []string{}, Evictions: []Eviction{}}
	before, killing := r.driver.State, maps.Clone(r.gone)
	r.driver.Decisions = nil
	r.driver.Run(in)
	maps.DeleteFunc(r.gone, func(uid types.UID, end time.Duration) bool {
		return end == atEnd && r.driver.State.Victim(uid) == nil
	})
	var met []eviction.Met
	for i := range r.driver.Decisions {
		d := &r.driver.Decisions[i]
		d.Explain()
		met = append(met, d.Met...)
		out.add(d)
	}
	for i := range r.driver.NotRestarted {
		out.FailedKills = append(out.FailedKills, r.driver.NotRestarted[i].Pod.String())
	}
	for i := range r.driver.Failed {
		out.FailedKills = append(out.FailedKills, r.driver.Failed[i].Pod.String())
	}
	r.report(&out, met, killing)
	out.Changes = r.changes(&before, &in, met)
	return out
}

// candidates are the pods that are there, with their usage where asked for.
func (r *runner) candidates(measured bool) (all []eviction.Candidate) {
	for _, pod := range r.alive {
		name := pod.String()
		if slices.Contains(r.step.absent, name) || measured && slices.Contains(r.step.exited, name) || r.ended[pod.UID] && r.driver.State.Victim(pod.UID) == nil {
			continue
		}
		c := eviction.Candidate{Pod: pod}
		if measured {
			used := r.usage[name]
			c.Usage, c.Growth, c.ReadBack, c.Stalled = used.pod, used.growth, used.readBack, used.stalled
		}
		all = append(all, c)
	}
	return all
}

// Measure implements eviction.Node.
func (r *runner) Measure(bool) []eviction.Candidate { return r.candidates(true) }

// MeasureContainers implements eviction.Node: usage has them.
func (r *runner) MeasureContainers(*eviction.Pod) {}

// UnknownPods implements eviction.Node.
func (r *runner) UnknownPods() bool { return r.step.unknown }

// ScanDisks implements eviction.Node: steps say when scans began.
func (r *runner) ScanDisks() {}

// Shorten implements eviction.Node: steps say when victims end.
func (r *runner) Shorten(eviction.Shortened) {}

// EndAgain implements eviction.Node: steps say which pods run again.
func (r *runner) EndAgain(*eviction.Pod) {}

// Resume implements eviction.Node.
func (r *runner) Resume(v *eviction.Resumed) error {
	if slices.Contains(r.step.killFails, v.Pod.String()) {
		return errKillFails
	}
	return nil
}

// Reclaim implements eviction.Node: it runs on, or frees what the step says.
func (r *runner) Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, _ eviction.Need, signals *eviction.Observations) bool {
	if slices.Contains(r.step.runsOn, s) {
		return true
	}
	for _, step := range steps {
		for signal, amount := range r.step.reclaims[step] {
			if o := &signals[signal]; o.Available.IsKnown() {
				o.Available = stats.Known(o.Available.Or(0) + amount)
			}
		}
	}
	return false
}

var errKillFails = errors.New("the step says so")

// Kill implements eviction.Node.
func (r *runner) Kill(e *eviction.Eviction) error { return r.kill(e) }

// Restart implements eviction.Node. Only the container ends.
func (r *runner) Restart(c *eviction.ContainerRestart) error {
	if slices.Contains(r.step.restartFails, c.Pod.String()) {
		return errKillFails
	}
	return r.kill(&c.Eviction)
}

func (r *runner) kill(e *eviction.Eviction) error {
	name := e.Pod.String()
	kill := r.step.kills[name]
	switch {
	case slices.Contains(r.step.killFails, name):
		return errKillFails
	case r.config.DryRun:
	case kill.Reported:
		r.gone[e.Pod.UID] = atEnd
	default:
		r.gone[e.Pod.UID] = r.step.at + kill.Takes.Duration
	}
	return nil
}

// endings removes the pods that have ended: by themselves, killed, or replaced by
// another pod of their name. Of those whose end is reported the step says what is
// known.
func (r *runner) endings(s *step, now time.Time) []eviction.Outcome {
	var outcomes []eviction.Outcome
	r.alive = slices.DeleteFunc(r.alive, func(pod *eviction.Pod) bool {
		end, killed := r.gone[pod.UID]
		followed := slices.ContainsFunc(s.add, func(next *eviction.Pod) bool { return next.String() == pod.String() })
		removed := slices.Contains(s.remove, pod.String())
		if !followed && !removed && (!killed || end > s.at) {
			return false
		}
		f := r.driver.State.Victim(pod.UID)
		if end != atEnd {
			delete(r.gone, pod.UID)
			outcomes = append(outcomes, eviction.Outcome{UID: pod.UID})
		}
		return followed || removed || f == nil || f.Container == "" // a pod outlives its container
	})
	for _, uid := range slices.Sorted(maps.Keys(s.ended)) {
		o := eviction.Outcome{UID: uid, Failed: s.ended[uid].Failed, Signalled: s.ended[uid].Signalled}
		if !o.Failed {
			o.Ended = now.Add(-s.ended[uid].Age.Duration)
			f := r.driver.State.Victim(uid)
			r.ended[uid] = o.Signalled && (f == nil || f.Container == "")
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// report states how the node is after the pass. Killing are the victims of earlier
// steps.
func (r *runner) report(out *Step, met []eviction.Met, killing map[types.UID]time.Duration) {
	for _, m := range met {
		out.ThresholdsMet = append(out.ThresholdsMet, Threshold{m.Signal.String(), m.Kind(), m.Signal.Quantity(m.Required), m.Signal.Quantity(m.Available)})
	}
	var raised nodestatus.Raised
	out.Conditions, out.Taints = map[string]bool{}, []string{}
	for c := range raised {
		raised[c] = r.driver.State.Pressure[c].Reported
		if c == int(eviction.MemoryContention) && r.config.MemoryStallWindow == 0 {
			continue
		}
		out.Conditions[eviction.Condition(c).String()] = raised[c]
	}
	out.Taints = append(out.Taints, nodestatus.TaintNames(nodestatus.Native.Taints(raised))...)
	for _, f := range r.driver.State.InFlight {
		i := slices.IndexFunc(r.alive, func(pod *eviction.Pod) bool { return pod.UID == f.UID })
		if _, earlier := killing[f.UID]; earlier && i >= 0 {
			out.InFlight = append(out.InFlight, strings.TrimSuffix(r.alive[i].String()+"/"+f.Container, "/"))
		}
	}
}

// add adds a decision of the pass.
func (s *Step) add(d *eviction.Decision) {
	for _, step := range d.Reclaim {
		if name := step.String(); !slices.Contains(s.NodeReclaim, name) {
			s.NodeReclaim = append(s.NodeReclaim, name)
		}
	}
	if len(d.Ranking) > 0 {
		s.rank(d)
	}
	for _, pod := range d.EndAgain {
		s.EndAgain = append(s.EndAgain, pod.String())
	}
	for i := range d.Steps {
		s.Before = append(s.Before, nodestatus.NewStep(&d.Steps[i]))
	}
	for i := range d.Restarts {
		c := &d.Restarts[i]
		s.Restarts = append(s.Restarts, Restart{c.Pod.String(), c.Name(), c.Signal.String(), c.GracePeriodSeconds, c.Grace.String(), c.Message, c.Because})
	}
	for _, e := range d.Evictions {
		s.Evictions = append(s.Evictions, Eviction{
			Pod: e.Pod.String(), Signal: e.Signal.String(), GracePeriodSeconds: e.GracePeriodSeconds,
			Reason: eviction.ReasonEvicted, Message: e.Message, DisruptionTarget: e.DisruptionTarget,
			Annotations: e.Annotations, Because: e.Because, Grace: e.Grace,
		})
	}
}

// rank lists the order of victims, protected pods left out, and why those
// before the victim stay.
func (s *Step) rank(d *eviction.Decision) {
	s.Ranking, s.PassedOver = []string{}, nil
	chosen := false
	for i := range d.Ranking {
		ranked := &d.Ranking[i]
		chosen = chosen || len(d.Evictions) > 0 && ranked.Pod == d.Evictions[0].Pod || len(d.Restarts) > 0 && ranked.Pod == d.Restarts[0].Pod
		if why := ranked.Exempt(); why != "" && !chosen {
			s.PassedOver = append(s.PassedOver, fmt.Sprintf("%v (%s)", ranked.Pod, why))
		}
		if ranked.Pod.Protection == "" {
			s.Ranking = append(s.Ranking, ranked.Pod.String())
		}
	}
}
