package eviction

import "slices"

// Node answers and carries out what Decide asks for in a pass.
type Node interface {
	// Measure returns the candidates with their usage; with that of processes where
	// asked for.
	Measure(processes bool) []Candidate
	// MeasureContainers measures the containers of a candidate into its usage.
	MeasureContainers(*Pod)
	// UnknownPods says whether processes run as pods that are none of the candidates.
	UnknownPods() bool
	// ScanDisks begins a scan of the pods' disks.
	ScanDisks()
	// Reclaim begins to free what a disk needs, and says whether that runs on.
	// Otherwise it is complete: signals are then what is available after it.
	Reclaim(signal Signal, steps []ReclaimStep, need Need, signals *Observations) (runsOn bool)
	// Kill begins to kill a victim, and Resume one of before the start.
	Kill(*Eviction) error
	// Restart begins to end a container.
	Restart(*ContainerRestart) error
	Resume(*Resumed) error
	// EndAgain kills the processes of a pod that has ended before.
	EndAgain(*Pod)
	// Take begins to take a step before evictions, or to end it.
	Take(*StepAction)
	// Shorten brings the SIGKILL of a victim in flight forward.
	Shorten(Shortened)
}

// Driver runs passes: it calls Decide until nothing is left to ask.
type Driver struct {
	Config *Config
	State  State
	Node   Node
	// Input of the pass: what it began with, and every fact that was added since but
	// what has become of kills and reclaims.
	Input Input

	// Decisions of the last pass in which anything was decided, in order. Their
	// evictions and resumed victims are those whose kill has begun. Run appends to it.
	Decisions []Decision
	// Failed are the evictions whose kill did not begin, and NotResumed the victims of
	// before the start whose kill did not begin again.
	Failed     []Eviction
	NotResumed []Resumed
	// NotRestarted are the restarts that did not begin.
	NotRestarted []ContainerRestart
	// Reclaims are those that have begun and run on.
	Reclaims []ReclaimOutcome
	// Chosen says that a kill has begun, Acted that a threshold acts, AwaitsScan that
	// a decision waits for a scan of the pods' disks.
	Chosen, Acted, AwaitsScan bool
	HeldBack                  *Pod

	processes bool // a threshold of process ids acts
}

// Run runs one pass.
func (d *Driver) Run(in Input) {
	*d = Driver{Config: d.Config, State: d.State, Node: d.Node, Decisions: d.Decisions, Input: in}
	for d.step() {
		d.Input.Pass = Continue
	}
	d.Input.Pass = in.Pass
}

// step is one call of Decide and what it asks for. It says whether another is to
// follow.
func (d *Driver) step() (again bool) {
	in := &d.Input
	state, next := Decide(d.Config, d.State, *in)
	d.State = state
	in.Outcomes, in.Reclaims = nil, nil
	d.Acted, d.HeldBack = d.Acted || len(next.Met) > 0, next.HeldBack
	d.AwaitsScan = next.AwaitsScan
	for i := range next.Met {
		d.processes = d.processes || next.Met[i].Signal == PIDAvailable
	}
	for _, s := range next.Shortened {
		d.Node.Shorten(s)
	}
	next.Resumed = slices.DeleteFunc(next.Resumed, func(r Resumed) bool {
		failed := d.Node.Resume(&r) != nil
		if failed {
			d.NotResumed = append(d.NotResumed, r)
			in.Outcomes = append(in.Outcomes, Outcome{UID: r.UID, Failed: true})
		}
		return failed
	})
	for _, pod := range next.EndAgain {
		d.Node.EndAgain(pod)
	}
	if next.ScanDisks {
		d.Node.ScanDisks()
	}
	for i := range next.Steps {
		d.Node.Take(&next.Steps[i])
	}
	switch {
	case next.NeedUsage:
		in.Candidates, in.Sampled, again = d.Node.Measure(d.processes), true, true
	case next.NeedContainers != nil:
		d.Node.MeasureContainers(next.NeedContainers)
		in.Detailed, again = next.NeedContainers.UID, true
	case next.NeedUnknownPods:
		in.UnknownPods, again = No, true
		if d.Node.UnknownPods() {
			in.UnknownPods = Yes
		}
	case len(next.Reclaim) > 0:
		if d.Node.Reclaim(next.ReclaimFor, next.Reclaim, next.ReclaimNeed, &in.Signals) {
			in.Reclaims = []ReclaimOutcome{{For: next.ReclaimFor}}
			d.Reclaims = append(d.Reclaims, in.Reclaims...)
		}
		again = true
	case len(next.Evictions) > 0:
		d.kill(&next)
		d.Chosen = d.Chosen || len(next.Evictions) > 0
	case len(next.Restarts) > 0:
		d.restart(&next)
		d.Chosen = d.Chosen || len(next.Restarts) > 0
	}
	if len(next.Met)+len(next.Ranking)+len(next.Evictions)+len(next.Restarts)+len(next.Reclaim)+len(next.Hastened)+len(next.Shortened)+len(next.Resumed)+len(next.EndAgain)+len(next.Steps) > 0 {
		d.Decisions = append(d.Decisions, next)
	}
	return again || len(in.Outcomes) > 0
}

// restart begins the restarts, and takes those that do not begin out of the decision: their pods are evicted.
func (d *Driver) restart(next *Decision) {
	next.Restarts = slices.DeleteFunc(next.Restarts, func(r ContainerRestart) bool {
		failed := d.Node.Restart(&r) != nil
		if failed {
			d.NotRestarted = append(d.NotRestarted, r)
			d.Input.Outcomes = append(d.Input.Outcomes, Outcome{UID: r.Pod.UID, Failed: true})
		}
		return failed
	})
}

// kill begins the evictions, and takes those that do not begin out of the decision.
func (d *Driver) kill(next *Decision) {
	for i := range next.Evictions {
		if e := &next.Evictions[i]; d.Node.Kill(e) != nil {
			d.Failed = append(d.Failed, *e)
			d.Input.Outcomes = append(d.Input.Outcomes, Outcome{UID: e.Pod.UID, Failed: true})
		}
	}
	if len(d.Input.Outcomes) > 0 {
		next.Evictions = slices.DeleteFunc(next.Evictions, func(e Eviction) bool {
			return slices.ContainsFunc(d.Input.Outcomes, func(o Outcome) bool { return o.UID == e.Pod.UID })
		})
	}
}
