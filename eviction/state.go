package eviction

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

// State is everything Decide remembers from call to call. It is a value; the
// zero State remembers nothing.
type State struct {
	// Thresholds has the indexes of Config.Thresholds.
	Thresholds [MaxThresholds]Standing
	// Pressure has the conditions as indexes.
	Pressure [NumConditions]Pressure
	// Looked is when the last housekeeping pass was; zero before the first.
	Looked time.Time
	// Observed is when each signal's last observation was taken; zero for a
	// signal that the last pass did not measure.
	Observed [NumSignals]time.Time
	// InFlight are the victims whose end has not been confirmed, oldest first.
	InFlight []InFlight
	// UnknownSince is since when victims are held back because of unknown pods;
	// zero while none is.
	UnknownSince time.Time
	// ScanAsked is when a scan of the pods' disks was last asked for.
	ScanAsked time.Time
	// Unreaped are victims whose kill had no process to signal: until Until their
	// exited processes may still be listed, and they are not eligible.
	Unreaped []Unreaped
	// Refused are pods that have arrived and that a kubelet would not admit. They are evicted once
	// they run, see Input.Arrived.
	Refused []types.UID
	// Steps are those before evictions that are in effect, or were not long ago.
	Steps []StepTaken
	// Restarts are those of containers that are within the back-off.
	Restarts []RestartedContainer
	// Relief is what the last victim of each condition's signals was chosen by.
	Relief [NumConditions]Relief
	// Reclaims are by disk.
	Reclaims [numDisks]Reclaim
	// Round and Throttled are of pods' memory. The next process begins without them.
	Round     ReclaimRound
	Throttled Throttled

	pass pass
}

// Standing is the state of a threshold.
type Standing struct {
	// FirstObserved is when the signal fell below; zero while it is not.
	FirstObserved time.Time
	// Acting says that the grace period has passed since then.
	Acting bool
}

// Pressure is a node condition and what holds it.
type Pressure struct {
	// LastObserved is when a threshold last raised it; zero if none ever did.
	LastObserved time.Time
	// Reported is the status of the condition: it outlives its cause by the transition
	// period.
	Reported bool
}

// InFlight is a victim whose resources are not free yet. It is the record of an
// eviction: journal, reports and status documents have copies of what they need.
type InFlight struct {
	UID types.UID
	// Container is the name of the container that is ended for its restart; empty where the pod is evicted.
	Container string
	// Decided is when the victim was chosen, also in a later process. With UID it
	// identifies the eviction.
	Decided time.Time
	Signal  Signal
	Hard    bool
	// Since is when Grace began: Decided, or when a hard threshold shortened it.
	Since time.Time
	// Grace is the time from Since to SIGKILL.
	Grace time.Duration
	// Patience is how much later than Grace allows the victim is overdue: a soft
	// kill may begin late, and a disk may be free late.
	Patience time.Duration
	// Unattended victims have no kill under way: those of a dry run, and those of
	// before the start until they are resumed. They leave flight when overdue.
	Unattended bool
	// Reported victims of before the start have a report to the API server, which is sent
	// or will be: their kill is begun again however late their pod is known.
	Reported bool
	// Held is what the victim of a disk held there, in the signal's unit; zero
	// where that is not known.
	Held int64
	// TasksAfter is how many tasks the node has at most once those of a victim of
	// process ids are reaped.
	TasksAfter stats.Amount
	// Ended is when no process of the victim was left, zero while one is, and
	// AvailableAtEnd what was available of Signal then.
	Ended          time.Time
	AvailableAtEnd int64
	// MemoryAtKill is the memory of the victim when it was first measured after SIGKILL, at
	// Killed. Stuck says that it did not become less.
	MemoryAtKill stats.Amount
	Killed       time.Time
	Stuck        bool
}

// ID is the name of an eviction, in journals and reports.
func (f *InFlight) ID() string { return fmt.Sprintf("%s@%d", f.UID, f.Decided.UnixNano()) }

// Unreaped is a pod of exited processes.
type Unreaped struct {
	UID   types.UID
	Until time.Time
}

// pass is the state of the running pass.
type pass struct {
	kind     Pass
	acting   [MaxThresholds]crossing
	reclaims [numDisks]bool // disks the node has been asked to free by itself
	rejected bool           // the refused pods that run are evicted
	limits   bool           // local-storage limits are evaluated
	chosen   []types.UID    // victims of this pass whose kill has not failed
	failed   []types.UID    // pods whose kill failed in this pass
}

// crossing is what opened the pass: set where the threshold acts, that is where
// its grace period has passed and its observation is new.
type crossing struct {
	acts                bool
	required, available int64
}

// Under is the state under another configuration of the same node: a threshold
// that has the same signal, value and grace in both is the same one, as in the
// kubelet, and keeps its standing; the others start again.
func (st State) Under(old, now *Config) State {
	var standing [MaxThresholds]Standing
	for i, t := range now.Thresholds {
		for j, before := range old.Thresholds {
			if t.Signal == before.Signal && t.Value == before.Value && t.Some == before.Some && t.Grace == before.Grace {
				standing[i] = st.Thresholds[j]
			}
		}
	}
	st.Thresholds, st.pass = standing, pass{}
	st.Round, st.Throttled = ReclaimRound{}, Throttled{}
	if old.Layout != now.Layout { // other disks
		st.Reclaims = [numDisks]Reclaim{}
	}
	return st
}

// without copies where it removes: earlier states share the slice.
func without[T any](s []T, drop func(T) bool) []T {
	if !slices.ContainsFunc(s, drop) {
		return s
	}
	return slices.DeleteFunc(slices.Clone(s), drop)
}

// Victim is the victim in flight with a uid; nil where the pod is none.
func (st *State) Victim(uid types.UID) *InFlight {
	if at := st.indexInFlight(uid); at >= 0 {
		return &st.InFlight[at]
	}
	return nil
}

// indexInFlight is the place of a victim in flight; negative where the pod is none.
func (st *State) indexInFlight(uid types.UID) int {
	return slices.IndexFunc(st.InFlight, func(f InFlight) bool { return f.UID == uid })
}

// SameStanding says whether two states decide the same but for observations that
// are repeated and for conditions. It ignores the running pass.
func (st *State) SameStanding(other *State) bool {
	return st.Thresholds == other.Thresholds && st.UnknownSince.Equal(other.UnknownSince) && st.ScanAsked.Equal(other.ScanAsked) &&
		st.Reclaims == other.Reclaims && st.Round.equal(&other.Round) && st.Throttled.equal(&other.Throttled) && st.Relief == other.Relief && slices.Equal(st.InFlight, other.InFlight) && slices.Equal(st.Restarts, other.Restarts) && slices.Equal(st.Steps, other.Steps) && slices.Equal(st.Unreaped, other.Unreaped) && slices.Equal(st.Refused, other.Refused)
}

// relieved says whether a victim in flight already answers the threshold: one
// for the same shortage, neither overdue nor stuck nor softer than the threshold.
func (st *State) relieved(t *Threshold, l Layout, now time.Time) bool {
	want := l.shortage(t.Signal)
	for i := range st.InFlight {
		if f := &st.InFlight[i]; l.shortage(f.Signal) == want && (f.Hard || !t.Hard()) && !f.Stuck && !f.Overdue(now) {
			return true
		}
	}
	return false
}

// lapse takes time without housekeeping passes out of the graces: a signal may have
// recovered meanwhile. A time longer than a grace restarts it.
func (st *State) lapse(cfg *Config, now time.Time) {
	blind := now.Sub(st.Looked) - cfg.Lapse
	if cfg.Lapse > 0 && !st.Looked.IsZero() && blind > 0 {
		for i := range cfg.Thresholds {
			standing := &st.Thresholds[i]
			if blind >= cfg.Thresholds[i].Grace {
				*standing = Standing{}
			} else if !standing.FirstObserved.IsZero() {
				standing.FirstObserved = standing.FirstObserved.Add(blind)
			}
		}
	}
	st.Looked = now
}

// GraceEnds is when the first running grace period of a soft threshold ends; zero where none
// runs.
func (st *State) GraceEnds(cfg *Config) (first time.Time) {
	for i := range cfg.Thresholds {
		s := &st.Thresholds[i]
		if s.FirstObserved.IsZero() || s.Acting {
			continue
		}
		if ends := s.FirstObserved.Add(cfg.Thresholds[i].Grace); first.IsZero() || ends.Before(first) {
			first = ends
		}
	}
	return first
}

// observe evaluates the thresholds and the conditions they raise. An event pass
// looks at hard thresholds only, and raises conditions but never lowers them.
func (st *State) observe(cfg *Config, in *Input) {
	if in.Pass == Housekeeping {
		st.lapse(cfg, in.Now)
	}
	for i := range cfg.Thresholds {
		t, standing := &cfg.Thresholds[i], &st.Thresholds[i]
		if in.Pass == Event && !t.Hard() {
			continue
		}
		o := in.Signals[t.Signal]
		// What has acted must rise by the minimum reclaim to be resolved.
		if !t.crossed(o, standing.Acting) {
			*standing = Standing{}
			continue
		}
		if standing.FirstObserved.IsZero() {
			standing.FirstObserved = in.Now
		}
		standing.Acting = in.Now.Sub(standing.FirstObserved) >= t.Grace
		st.Pressure[t.Signal.Condition()].LastObserved = in.Now
		last := st.Observed[t.Signal]
		fresh := o.Time.IsZero() || o.Time.After(last)
		if standing.Acting && fresh {
			required, _ := t.Value.Of(o)
			st.pass.acting[i] = crossing{true, required, o.Available.Or(0)}
		}
	}
	for c := range st.Pressure {
		p := &st.Pressure[c]
		held := !p.LastObserved.IsZero() && in.Now.Sub(p.LastObserved) < cfg.PressureTransitionPeriod
		p.Reported = held || p.Reported && in.Pass == Event
	}
	for s, o := range in.Signals {
		if o.Available.IsKnown() {
			st.Observed[s] = o.Time
		} else if in.Pass == Housekeeping {
			st.Observed[s] = time.Time{}
		}
	}
}
