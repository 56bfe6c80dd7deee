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
	// Continue goes on with the running pass after an outcome.
	Continue
)

// Outcome is what has become of a victim in flight: it is gone, or its kill
// failed and it is not an eviction.
type Outcome struct {
	UID    types.UID
	Failed bool
}

// Input is what Decide is told.
type Input struct {
	Now  time.Time
	Pass Pass
	// Signals as they are now, read again after a reclaim.
	Signals Observations
	// Candidates are the node's pods. Their usage counts only where Sampled.
	Candidates []Candidate
	// Sampled says that usage was measured in this pass.
	Sampled bool
	// Strangers says that processes run as pods which are none of Candidates.
	// Counts only where Sampled.
	Strangers bool
	// Outcomes since the call before.
	Outcomes []Outcome
	// Reclaims are those that have begun and go on, or have ended, since the call
	// before. One that is asked for and not told of was over at once.
	Reclaims []ReclaimOutcome
	// Room is memory for what the call returns; nil where it may allocate.
	Room *Room
}

// Met is a threshold that acts, with what was required and what was there when
// the pass opened.
type Met struct {
	*Threshold
	Required, Available int64
	// Since is when the signal was first seen below the threshold.
	Since time.Time
}

// Eviction is a victim, and why.
type Eviction struct {
	Pod    *Pod
	Signal Signal
	Hard   bool
	// Since is when the signal was first seen below the threshold.
	Since time.Time
	// GracePeriodSeconds the victim is given, at least 1.
	GracePeriodSeconds int64
	// Grace is what it has before SIGKILL: that, unless there is no time for it.
	Grace   time.Duration
	Message string
	// DisruptionTarget says whether the pod's status gets that condition;
	// victims of local-storage limits do not.
	DisruptionTarget bool
	// Annotations of the pod's event.
	Annotations map[string]string
	// Because tells why this pod went before the next candidate.
	Because string

	met          Met     // that a victim of node pressure was chosen for
	victim, next *Ranked // it, and who would have gone in its place
	unreclaimed  string  // why the node could not free enough by itself
}

// Decision is what to do. At most one of NeedUsage, Reclaim and Evictions is
// set; after the first two, and after a kill that fails at once, call Decide
// again with Continue.
type Decision struct {
	// Met are the thresholds that act in this pass, by signal name, hard
	// before soft. Set by the call that opens a pass.
	Met []Met
	// NeedUsage asks for the candidates' usage. What they hold on disks must
	// have been measured since NeedSince, unless that is zero.
	NeedUsage bool
	NeedSince time.Time
	// Reclaim asks the node to free by itself what ReclaimFor's disk lacks, and to
	// observe again.
	Reclaim     []ReclaimStep
	ReclaimFor  Signal
	ReclaimNeed Need
	// Ranking is the order of victims for Ranked's signal, exempt pods among
	// them; empty where no pod was considered.
	Ranking []Ranked
	// Hastened are victims of a soft threshold in flight that a hard one gives no
	// more time: their grace is now that of its own victims.
	Hastened []*Pod
	// HeldBack is the pod whose turn it is, and which stays for now because it
	// is within its request and strangers may be what uses the rest.
	HeldBack *Pod
	// Evictions to start now.
	Evictions []Eviction
}

// Decide advances the state by one call and says what to do. It is total and
// deterministic and leaves its inputs as they are.
func Decide(cfg *Config, st State, in Input) (State, Decision) {
	var d Decision
	if in.Pass != Continue {
		st.pass = pass{kind: in.Pass}
		st.settle(in.Outcomes)
		st.settleReclaims(cfg, &in)
		st.observe(cfg, &in)
		if d.Met = st.met(cfg, in.Room); len(d.Met) == 0 {
			st.Doubted = time.Time{}
		}
	} else {
		st.settle(in.Outcomes)
		st.settleReclaims(cfg, &in)
	}
	if len(st.pass.chosen) == 0 && !st.limits(cfg, &in, &d) {
		st.relieve(cfg, &in, &d)
	}
	return st, d
}

// met lists the thresholds that act in this pass.
func (st *State) met(cfg *Config, room *Room) []Met {
	var met []Met
	for i := range cfg.Thresholds {
		if st.pass.acting[i].acts {
			if met == nil {
				met = room.forMet()
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

// limits evicts the pods that are over a local-storage limit of their own, all
// of them, once a housekeeping pass. It says whether the pass ends with that.
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
			st.start(&e, in.Now)
			d.Evictions = append(d.Evictions, e)
		}
	}
	return len(d.Evictions) > 0
}

// eligible says whether the pod may be chosen at all in this pass.
func (st *State) eligible(p *Pod) bool {
	return p.Protection == "" && !p.Terminal && !st.inFlight(p.UID) && !slices.Contains(st.pass.failed, p.UID)
}

// relieve answers the first threshold that acts and that something can be done
// for: the node frees what it can by itself, then one pod goes.
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
		if !in.Sampled {
			d.NeedUsage = true
			if t.Signal.Condition() == DiskPressure {
				d.NeedSince = st.Thresholds[i].FirstObserved
			}
			return
		}
		if st.choose(cfg, in, st.metAt(cfg, i), d) {
			return
		}
	}
}

// choose ranks the candidates for a threshold and starts to evict the first that
// is not exempt; where the configuration says so, as many as are enough. It says
// whether there was one, or one is held back.
func (st *State) choose(cfg *Config, in *Input, t Met, d *Decision) bool {
	missing, known := st.missing(cfg, in, t.Threshold)
	if known && missing <= 0 {
		return false
	}
	ranking := Rank(t.Signal, cfg.Layout, in.Candidates, in.Room.forRanking(len(in.Candidates)))
	if t.Hard() && st.hasten(cfg, in, t.Signal, ranking, d) {
		return true
	}
	awaited := st.awaited(in, t.Threshold, ranking)
	ranking = slices.DeleteFunc(ranking, func(r Ranked) bool { return st.inFlight(r.Pod.UID) })
	i := st.willing(ranking, 0)
	if i < 0 || awaited != nil {
		if d.Ranking == nil {
			d.Ranking = ranking
		}
		return false
	}
	d.Ranking = ranking
	st.InFlight = in.Room.forInFlight(st.InFlight)
	st.pass.chosen = in.Room.forChosen(st.pass.chosen)
	if d.Evictions == nil {
		d.Evictions = in.Room.forEvictions()
	}
	for more := true; more && i >= 0; {
		victim := &ranking[i]
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
		if i = st.willing(ranking, i+1); i >= 0 {
			e.next = &ranking[i]
		}
		st.start(&e, in.Now)
		d.Evictions = append(d.Evictions, e)
		frees, measured := victim.atMost()
		missing -= frees
		more = cfg.EnoughVictims && known && measured && missing > 0
	}
	return true
}

// awaited is a victim in flight for another shortage of the node's that would be the
// first to go for this one, too: what it holds comes back without a second victim.
// Nil where there is none.
func (st *State) awaited(in *Input, t *Threshold, ranking []Ranked) *InFlight {
	for i := range ranking {
		r := &ranking[i]
		at := slices.IndexFunc(st.InFlight, func(f InFlight) bool { return f.UID == r.Pod.UID })
		if at < 0 {
			if r.Exempt() == "" && st.eligible(r.Pod) {
				return nil
			}
			continue
		}
		f := &st.InFlight[at]
		if int(f.Signal) < NumSignals && (f.Hard || !t.Hard()) && !f.Overdue(in.Now) && r.WouldFree.Or(0) > 0 {
			return f
		}
	}
	return nil
}

// hasten gives those victims of soft thresholds no more time for whose sake others
// would go: all of the same shortage where nobody else may, and one of memory that
// is first in the ranking and takes more of it, faster than anybody else. It says
// whether there is any.
func (st *State) hasten(cfg *Config, in *Input, s Signal, ranking []Ranked, d *Decision) bool {
	first := st.willing(ranking, 0)
	var fastest int64
	for i := range ranking {
		fastest = max(fastest, ranking[i].Growth)
	}
	copied := false
	for i := range ranking {
		r := &ranking[i]
		at := slices.IndexFunc(st.InFlight, func(f InFlight) bool { return f.UID == r.Pod.UID })
		if at < 0 || r.ended() || st.InFlight[at].Hard || cfg.Layout.shortage(st.InFlight[at].Signal) != cfg.Layout.shortage(s) {
			continue
		}
		if first >= 0 && !(i < first && s.Condition() == MemoryPressure && r.Growth > 0 && r.Growth == fastest) {
			continue
		}
		if !copied {
			st.InFlight, copied = in.Room.forInFlight(st.InFlight), true
		}
		f := &st.InFlight[at]
		f.Hard, f.Since, f.Grace = true, in.Now, hardGrace
		d.Hastened = append(d.Hastened, r.Pod)
	}
	return copied
}

// willing finds the first from a place on that may go.
func (st *State) willing(ranking []Ranked, from int) int {
	for i := from; i < len(ranking); i++ {
		if r := &ranking[i]; r.Exempt() == "" && st.eligible(r.Pod) {
			return i
		}
	}
	return -1
}

// Explain writes the texts of the evictions, which Decide leaves out: whoever
// ends pods has no time for them before. It goes by the candidates as they are
// now, which may have been measured again since.
func (d *Decision) Explain() {
	for i := range d.Evictions {
		d.Evictions[i].explain()
	}
}

func (e *Eviction) explain() {
	if e.victim == nil { // of a limit of its own: told
		return
	}
	e.Message, e.Annotations = tell(e.victim.Candidate, e.met)
	because := "no other pod could go"
	if e.next != nil {
		because = e.victim.Before(e.next)
	}
	e.Because = because + e.unreclaimed
}

// hardGrace is that of a victim of a hard threshold.
const hardGrace = time.Second

// Frees is what the victim's end gives back, in the signal's unit; unknown of one
// that has no statistics, or goes for a limit of its own.
func (e *Eviction) Frees() stats.Amount {
	if e.victim == nil {
		return stats.Amount{}
	}
	return e.victim.WouldFree
}

// gracePeriod is the victim's, in seconds: one for a hard threshold; for a soft
// one what the pod asks for, up to the configured maximum, and never below one.
func gracePeriod(cfg *Config, t *Threshold, p *Pod) int64 {
	if t.Hard() {
		return int64(hardGrace / time.Second)
	}
	grace := cfg.MaxPodGracePeriod
	if p.TerminationGracePeriod != nil {
		grace = min(grace, *p.TerminationGracePeriod)
	}
	return max(1, grace)
}

// start puts a victim in flight.
func (st *State) start(e *Eviction, now time.Time) {
	e.Grace = time.Duration(e.GracePeriodSeconds) * time.Second
	st.InFlight = append(st.InFlight, InFlight{
		UID: e.Pod.UID, Signal: e.Signal, Hard: e.Hard, Since: now,
		Grace: e.Grace,
	})
	st.pass.chosen = append(st.pass.chosen, e.Pod.UID)
}
