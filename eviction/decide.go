package eviction

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

// Pass says what a call of Decide may look at.
type Pass uint8

const (
	// Housekeeping advances everything: a new pass.
	Housekeeping Pass = iota
	// Event evaluates hard thresholds only, so that fast sensing changes how
	// soon a hard line is acted on and nothing else: a new pass.
	Event
	// Continue continues the running pass with answers.
	Continue
	// Watch decides about steps before evictions and nothing else: a new pass. Candidates have
	// the usage of their containers, as far as steps are configured for them.
	Watch
)

// Answer to a question of Decide.
type Answer uint8

// The answers. Unasked says that the question can be asked.
const (
	No Answer = iota
	Yes
	Unasked
)

// Input is the facts for a call of Decide.
type Input struct {
	Now  time.Time
	Pass Pass
	// Signals are measured for this call, and again after a reclaim.
	Signals Observations
	// Candidates are the pods of the node that can be killed. Their usage counts
	// only where Sampled.
	Candidates []Candidate
	// Sampled says that usage was measured in this pass.
	Sampled bool
	// DiskScans says that the disk usage of Candidates comes from scans, and
	// ScannedSince when the last complete one began; zero before the first. Without
	// scans it is as of this pass.
	DiskScans    bool
	ScannedSince time.Time
	// Detailed is the pod whose containers were measured in this pass.
	Detailed types.UID
	// UnknownPods says whether processes run as pods that are none of Candidates.
	UnknownPods Answer
	// Outcomes of kills since the call before.
	Outcomes []Outcome
	// TasksLeft are of ended victims of process ids; needed by the call that opens a
	// pass.
	TasksLeft []TasksLeft
	// VictimUsage is of hard victims of memory that were sent SIGKILL; needed by the call that
	// opens a pass.
	VictimUsage []VictimUsage
	// Restarted are pods that have processes again.
	Restarted []Restarted
	// Arrived are the pods bound to the node since the pass before, where there is no kubelet
	// that could refuse them.
	Arrived []types.UID
	// Reclaims are those that have begun and run on, or have ended, since the call
	// before. One that is asked for and not listed was complete at once.
	Reclaims []ReclaimOutcome
	// StepOutcomes are those since the call before; needed by the call that opens a pass.
	StepOutcomes []StepOutcome
	// Fastest is the pod whose memory grows fastest; zero where none does, or it was not measured just now.
	Fastest Growth
	// Buffers for what the call returns; nil where it may allocate.
	Buffers *Buffers
}

// Met is a threshold that acts, with what was required and what was there when
// the pass opened.
type Met struct {
	*Threshold
	Required, Available int64
	// Since is when the signal was first observed below the threshold.
	Since time.Time
}

// Eviction is a victim, and why.
type Eviction struct {
	Pod    *Pod
	Signal Signal
	Hard   bool
	// Since is when the signal was first observed below the threshold.
	Since time.Time
	// GracePeriodSeconds is the announced grace period, at least 1.
	GracePeriodSeconds int64
	// Grace is the time from SIGTERM to SIGKILL: shorter than announced where a
	// signal is used up before, or where the configuration says so.
	Grace   time.Duration
	Message string
	// DisruptionTarget says whether the pod's status gets that condition;
	// victims of local-storage limits do not.
	DisruptionTarget bool
	// Annotations of the pod's event.
	Annotations map[string]string
	// Because says why this pod ranks before the next candidate.
	Because string

	met          Met     // that a victim of node pressure was chosen for
	victim, next *Ranked // it, and the next eligible pod
	unreclaimed  string  // why the node could not free enough by itself
	// restarted is a container of the pod that was restarted so long before; afterRestart says that this is
	// why the pod is the victim.
	restarted    RestartedContainer
	ago          time.Duration
	afterRestart bool
}

// Decision is what to do. At most one of NeedUsage, NeedContainers, NeedUnknownPods, Reclaim and
// Evictions with Restarts is set; after the first four, and after a kill that does not begin, call
// Decide again with Continue. Driver does.
type Decision struct {
	// Met are the thresholds that act in this pass, by signal name, hard
	// before soft. Set by the call that opens a pass.
	Met []Met
	// NeedUsage asks for the candidates' usage.
	NeedUsage bool
	// NeedContainers asks for what the containers of a candidate use.
	NeedContainers *Pod
	// NeedUnknownPods asks whether processes run as pods that are none of the
	// candidates.
	NeedUnknownPods bool
	// ScanDisks asks for a new scan of the candidates' disk usage. AwaitsScan says
	// that a decision about a disk waits for it.
	ScanDisks, AwaitsScan bool
	// Reclaim asks the node to free by itself what ReclaimFor's disk lacks, and to
	// observe again.
	Reclaim     []ReclaimStep
	ReclaimFor  Signal
	ReclaimNeed Need
	// Ranking is the order of victims for Ranked's signal, exempt pods among
	// them; empty where no pod was considered.
	Ranking []Ranked
	// Hastened are victims of a soft threshold in flight that a hard one gives no
	// more time.
	Hastened []*Pod
	// Shortened are victims in flight whose SIGKILL is to be sent earlier, those of
	// Hastened among them.
	Shortened []Shortened
	// Resumed are victims of before the start whose kill is to be begun again.
	Resumed []Resumed
	// EndAgain are pods whose eviction has ended, and whose processes are killed again. That is
	// no eviction.
	EndAgain []*Pod
	// HeldBack is the first eligible pod, which is not evicted for now because it
	// is within its request and unknown pods may use the rest.
	HeldBack *Pod
	// Withdrawn are soft victims whose eviction is to be withdrawn, if it is only requested yet.
	Withdrawn []types.UID
	// Evictions to start now.
	Evictions []Eviction
	// Restarts of containers in place of evictions, to start now.
	Restarts []ContainerRestart
	// Steps before evictions to take or to end: those on containers of a Watch pass, those on pods of the call
	// that opens another.
	Steps []StepAction
}

// Decide advances the state by one call and says what to do. It is total and
// deterministic and leaves its inputs as they are.
func Decide(cfg *Config, st State, in Input) (State, Decision) {
	var d Decision
	opens := in.Pass != Continue
	if opens {
		st.pass = pass{kind: in.Pass}
	}
	if in.Pass == Watch {
		return takeSteps(cfg, st, in)
	}
	st.settle(&in)
	if opens {
		st.release(cfg, &in)
		st.forgetRestarts(cfg, in.Now)
		st.watchVictims(cfg, &in)
		st.shortenGraces(cfg, &in, &d)
		st.resume(cfg, &in, &d)
		st.endAgain(cfg, &in, &d)
	}
	st.settleReclaims(cfg, &in, &d)
	if opens {
		st.observe(cfg, &in)
		if d.Met = st.met(cfg, in.Buffers); len(d.Met) == 0 {
			st.UnknownSince = time.Time{}
		}
		st.withdraw(cfg, &in, &d)
		st.admit(&in)
		st.reclaimMemory(cfg, &in, &d)
		st.throttle(cfg, &in, &d)
	}
	if len(st.pass.chosen) == 0 && !st.reject(cfg, &in, &d) && !st.limits(cfg, &in, &d) {
		st.relieve(cfg, &in, &d)
	}
	return st, d
}

// met lists the thresholds that act in this pass.
func (st *State) met(cfg *Config, buffers *Buffers) []Met {
	var met []Met
	for i := range cfg.Thresholds {
		if st.pass.acting[i].acts {
			if met == nil {
				met = buffers.forMet()
			}
			met = append(met, st.metAt(cfg, i))
		}
	}
	slices.SortStableFunc(met, func(a, b Met) int {
		if c := strings.Compare(a.Signal.String(), b.Signal.String()); c != 0 {
			return c
		}
		return compareBool(!a.Hard(), !b.Hard())
	})
	return met
}

func (st *State) metAt(cfg *Config, i int) Met {
	c := &st.pass.acting[i]
	return Met{&cfg.Thresholds[i], c.required, c.available, st.Thresholds[i].FirstObserved}
}

// limits evicts all pods that are over a local-storage limit of their own, once a
// housekeeping pass. It says whether the pass ends with that.
func (st *State) limits(cfg *Config, in *Input, d *Decision) (ends bool) {
	if st.pass.limits || st.pass.kind == Event || !cfg.LocalStorageCapacityIsolation {
		return false
	}
	limited := func(c Candidate) bool { return c.Pod.HasStorageLimits() && st.eligible(c.Pod) }
	if !in.Sampled && slices.ContainsFunc(in.Candidates, limited) {
		d.NeedUsage = true
		return true
	}
	st.pass.limits = true
	st.InFlight, st.pass.chosen = slices.Clip(st.InFlight), slices.Clip(st.pass.chosen)
	for _, c := range in.Candidates {
		if !limited(c) {
			continue
		}
		if signal, message, over := exceededLimit(c, cfg.Layout); over {
			e := Eviction{Pod: c.Pod, Signal: signal, Hard: true, Since: in.Now, GracePeriodSeconds: 1, Message: message, Annotations: map[string]string{}, Because: strings.TrimSpace(message)}
			st.start(cfg, in, &e)
			d.Evictions = append(d.Evictions, e)
		}
	}
	return len(d.Evictions) > 0
}

// eligible says whether the pod may be chosen at all in this pass.
func (st *State) eligible(p *Pod) bool {
	return p.Protection == "" && !p.Terminal && st.indexInFlight(p.UID) < 0 && !slices.Contains(st.pass.failed, p.UID) &&
		!slices.ContainsFunc(st.Unreaped, func(u Unreaped) bool { return u.UID == p.UID })
}

// relieve answers the first threshold that acts and that something can be done
// for: the node frees what it can by itself, then one pod is evicted.
func (st *State) relieve(cfg *Config, in *Input, d *Decision) {
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		if !st.pass.acting[i].acts || st.relieved(t, cfg.Layout, in.Now) {
			continue
		}
		if st.reclaims(cfg, in, t, d) {
			if len(d.Reclaim) > 0 {
				return
			}
			continue
		}
		met := st.metAt(cfg, i)
		if !in.Sampled {
			d.NeedUsage = !st.awaitsScan(in, &met, d)
			return
		}
		if st.choose(cfg, in, met, d) {
			return
		}
	}
}

// choose ranks the candidates for a threshold and starts to evict the first eligible
// one; where the configuration says so, as many as suffice. It says whether there
// was one, or a fact is missing to decide on it.
func (st *State) choose(cfg *Config, in *Input, t Met, d *Decision) bool {
	missing, known := st.missing(cfg, in, t.Threshold)
	if known && missing <= 0 {
		return false
	}
	ranking := rank(cfg, t.Signal, in.Candidates, st.InFlight, in.Buffers.forRanking(len(in.Candidates)))
	held := held(ranking)
	if t.Hard() && st.hasten(cfg, in, t.Signal, ranking, d) {
		return true
	}
	awaited := st.awaited(in, t.Threshold, ranking)
	ranking = slices.DeleteFunc(ranking, func(r Ranked) bool { return st.indexInFlight(r.Pod.UID) >= 0 })
	i := st.nextEligible(ranking, 0)
	if i < 0 && cfg.Layout.placement(t.Signal).holds != 0 {
		i = st.lastResort(ranking)
	}
	if t.Signal == MemoryStall && !slices.ContainsFunc(ranking, func(r Ranked) bool { return r.Causes }) {
		i = -1 // what the pods read back is not measured yet, or other programs do
	}
	if i >= 0 && awaited == nil && st.awaitsScan(in, &t, d) {
		return true
	}
	follows := i >= 0 && awaited == nil && st.follows(cfg, in, &t, ranking, &ranking[i], missing, held)
	if group := st.outsideFirst(in, &t, ranking, i >= 0, follows); group >= 0 && awaited == nil {
		i, follows = group, true
	}
	if !follows || awaited != nil {
		if d.Ranking == nil {
			d.Ranking = ranking
		}
		return false
	}
	if !ranking[i].Exceeds {
		if at := st.afterRestart(&t, ranking); at >= 0 {
			i = at
		}
	}
	if st.restart(cfg, in, &t, ranking, i, missing, known, held, d) {
		return true
	}
	before := *st
	d.Ranking = ranking
	st.InFlight = in.Buffers.forInFlight(st.InFlight)
	st.pass.chosen = in.Buffers.forChosen(st.pass.chosen)
	if d.Evictions == nil {
		d.Evictions = in.Buffers.forEvictions()
	}
	for more := true; more && i >= 0; {
		victim := &ranking[i]
		if !victim.Exceeds && in.UnknownPods == Unasked {
			*st, d.Evictions, d.Ranking, d.NeedUnknownPods = before, nil, nil, true
			return true
		}
		if st.holdsBack(in, victim) {
			d.HeldBack = victim.Pod
			break
		}
		e := Eviction{
			Pod: victim.Pod, Signal: t.Signal, Hard: t.Hard(), Since: t.Since,
			GracePeriodSeconds: gracePeriod(cfg, t.Threshold, victim.Pod),
			DisruptionTarget:   true,
			met:                t, victim: victim,
			unreclaimed: st.unreclaimed(cfg.Layout, in, t.Signal),
		}
		if r := st.restarted(victim.Pod.UID); r != nil {
			e.restarted, e.ago, e.afterRestart = *r, in.Now.Sub(r.At), st.nextEligible(ranking, 0) < i
		}
		if i = st.nextEligible(ranking, i+1); i >= 0 {
			e.next = &ranking[i]
		}
		st.start(cfg, in, &e)
		st.chose(cfg, in, &e, e.Frees().Or(0), held)
		d.Evictions = append(d.Evictions, e)
		frees, measured := victim.atMost()
		missing -= frees
		more = cfg.EnoughVictims && !victim.LastResort && !e.Pod.Outside && !st.Relief[t.Signal.Condition()].Outside && known && measured && missing > 0
	}
	return true
}

// scanPatience is how long a decision about a disk waits for disk usage that is
// younger than the crossing of its threshold.
const scanPatience = 5 * time.Second

// askScan asks for a scan of the pods' disks that begins after an instant, unless
// there is one or it was asked for since.
func (st *State) askScan(in *Input, since time.Time, d *Decision) (scanned bool) {
	if !in.DiskScans || in.ScannedSince.After(since) {
		return true
	}
	if st.ScanAsked.Before(since) {
		st.ScanAsked, d.ScanDisks = in.Now, true
	}
	return false
}

// awaitsScan says whether a threshold of a disk waits for younger disk usage, and
// asks for it.
func (st *State) awaitsScan(in *Input, t *Met, d *Decision) bool {
	d.AwaitsScan = t.Signal.Condition() == DiskPressure && !t.Since.IsZero() && !st.askScan(in, t.Since, d) && in.Now.Sub(st.ScanAsked) <= scanPatience
	return d.AwaitsScan
}

// awaited is a victim in flight for another shortage of the node that ranks first for
// this one, too: what it holds is freed without a second victim. Nil where there is
// none.
func (st *State) awaited(in *Input, t *Threshold, ranking []Ranked) *InFlight {
	for i := range ranking {
		r := &ranking[i]
		at := st.indexInFlight(r.Pod.UID)
		if at < 0 {
			if r.Exempt() == "" && st.eligible(r.Pod) {
				return nil
			}
			continue
		}
		f := &st.InFlight[at]
		if int(f.Signal) < NumSignals && (f.Signal != MemoryStall || f.Ended.IsZero()) && (f.Hard || !t.Hard()) && !f.Stuck && !f.Overdue(in.Now) && r.WouldFree.Or(0) > 0 {
			return f
		}
	}
	return nil
}

// lastResort is the place of the first pod by the kubelet's order if each pod seems to hold nothing on the starved
// filesystem; negative if one holds something, or none may be evicted.
func (st *State) lastResort(ranking []Ranked) int {
	if slices.ContainsFunc(ranking, func(r Ranked) bool { return r.Exempt() == "" }) {
		return -1
	}
	for i := range ranking {
		ranking[i].LastResort = ranking[i].Exempt() == holdsNothing && !ranking[i].Pod.Outside
	}
	return st.nextEligible(ranking, 0)
}

// nextEligible is the place of the first eligible pod that has processes, or is to free a disk, from a place on;
// negative without one.
func (st *State) nextEligible(ranking []Ranked, from int) int {
	for i := from; i < len(ranking); i++ {
		if r := &ranking[i]; r.Exempt() == "" && (!r.ended() || r.Signal.Condition() == DiskPressure && r.WouldFree != stats.Known(0)) && st.eligible(r.Pod) {
			return i
		}
	}
	return -1
}

// Frees is what the victim's end frees, in the signal's unit; unknown where it has
// no statistics, or is evicted for a limit of its own.
func (e *Eviction) Frees() stats.Amount {
	if e.victim == nil {
		return stats.Amount{}
	}
	return e.victim.WouldFree
}
