package eviction

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kept is the part of a State that outlives the process. It holds names, and times as
// how long ago they were: no clock of this process means anything to another.
type Kept struct {
	// Looked is how long ago the last housekeeping pass was.
	Looked time.Duration `json:"looked"`
	// Thresholds are all of the configuration.
	Thresholds []KeptThreshold `json:"thresholds"`
	// Pressure is by the type of the condition: how long ago a threshold last
	// raised it.
	Pressure map[string]time.Duration `json:"pressure,omitempty"`
	InFlight []KeptVictim             `json:"inFlight,omitempty"`
	Refused  []types.UID              `json:"refused,omitempty"`
	Steps    []KeptStep               `json:"steps,omitempty"`
	Restarts []KeptRestart            `json:"restarts,omitempty"`
	// The field says for how long no reclaim may begin, by disk of the Layout.
	Layout Layout `json:"layout"`
	// Relief is by the type of the condition.
	Relief map[string]KeptRelief   `json:"relief,omitempty"`
	Rests  [numDisks]time.Duration `json:"rests"`
}

// KeptThreshold is what makes a threshold the same one in another configuration,
// and its standing.
type KeptThreshold struct {
	Signal string        `json:"signal"`
	Value  Value         `json:"value"`
	Some   Share         `json:"some,omitempty"`
	Grace  time.Duration `json:"grace,omitempty"`
	// Met is how long ago its signal was first observed below; nil where it is not.
	Met    *time.Duration `json:"met,omitempty"`
	Acting bool           `json:"acting,omitempty"`
}

func (k *KeptThreshold) is(t *Threshold) bool {
	return k.Signal == t.Signal.String() && k.Value == t.Value && k.Some == t.Some && k.Grace == t.Grace
}

// KeptVictim is a victim that was being ended.
type KeptVictim struct {
	UID       types.UID `json:"uid"`
	Container string    `json:"container,omitempty"`
	// Decided is zero in what earlier versions wrote.
	Decided time.Time     `json:"decided,omitzero"`
	Signal  string        `json:"signal"`
	Hard    bool          `json:"hard,omitempty"`
	Since   time.Duration `json:"since"`
	Grace   time.Duration `json:"grace"`
	// Patience is nil in what earlier versions wrote: Grace holds both then.
	Patience *time.Duration `json:"patience,omitempty"`
	// Reported is as in InFlight.
	Reported bool `json:"reported,omitempty"`
}

// KeptStep is a StepTaken. Clear is nil while it has a cause.
type KeptStep struct {
	Step      string         `json:"step"`
	UID       types.UID      `json:"uid"`
	Container string         `json:"container"`
	Cause     string         `json:"cause"`
	Since     time.Duration  `json:"since"`
	Last      time.Duration  `json:"last"`
	Clear     *time.Duration `json:"clear,omitempty"`
	Over      bool           `json:"over,omitempty"`
	Bytes     int64          `json:"bytes,omitempty"`
}

// KeptRestart is a RestartedContainer.
type KeptRestart struct {
	UID       types.UID     `json:"uid"`
	Container string        `json:"container"`
	Signal    string        `json:"signal"`
	Hard      bool          `json:"hard,omitempty"`
	Since     time.Duration `json:"since"`
	Failed    bool          `json:"failed,omitempty"`
}

// KeptRelief is a Relief.
type KeptRelief struct {
	Signal    string        `json:"signal"`
	Since     time.Duration `json:"since"`
	Available int64         `json:"available"`
	Held      int64         `json:"held"`
	Victim    int64         `json:"victim"`
	Outside   bool          `json:"outside,omitempty"`
	Group     bool          `json:"group,omitempty"`
}

// Keep is the part of the state that outlives the process, as of now.
func (st *State) Keep(cfg *Config, now time.Time) Kept {
	k := Kept{Looked: now.Sub(st.Looked), Pressure: map[string]time.Duration{}, Layout: cfg.Layout, Refused: st.Refused}
	for i := range cfg.Thresholds {
		t, standing := &cfg.Thresholds[i], &st.Thresholds[i]
		kept := KeptThreshold{Signal: t.Signal.String(), Value: t.Value, Some: t.Some, Grace: t.Grace, Acting: standing.Acting}
		if !standing.FirstObserved.IsZero() {
			met := now.Sub(standing.FirstObserved)
			kept.Met = &met
		}
		k.Thresholds = append(k.Thresholds, kept)
	}
	for c := range st.Pressure {
		if last := st.Pressure[c].LastObserved; !last.IsZero() {
			k.Pressure[Condition(c).String()] = now.Sub(last)
		}
	}
	for c, r := range st.Relief {
		if r.Since.IsZero() {
			continue
		}
		if k.Relief == nil {
			k.Relief = map[string]KeptRelief{}
		}
		k.Relief[Condition(c).String()] = KeptRelief{r.Signal.String(), now.Sub(r.Since), r.Available, r.Held, r.Victim, r.Outside, r.Group}
	}
	for _, f := range st.InFlight {
		k.InFlight = append(k.InFlight, KeptVictim{f.UID, f.Container, f.Decided, f.Signal.String(), f.Hard, now.Sub(f.Since), f.Grace, &f.Patience, f.Reported})
	}
	for _, r := range st.Restarts {
		k.Restarts = append(k.Restarts, KeptRestart{r.UID, r.Container, r.Signal.String(), r.Hard, now.Sub(r.At), r.Failed})
	}
	for _, t := range st.Steps {
		kept := KeptStep{Step: t.Step.String(), UID: t.UID, Container: t.Container, Cause: t.Cause.String(), Since: now.Sub(t.Since), Last: now.Sub(t.Last), Over: t.Over, Bytes: t.Bytes}
		if !t.Clear.IsZero() {
			clear := now.Sub(t.Clear)
			kept.Clear = &clear
		}
		k.Steps = append(k.Steps, kept)
	}
	for d := range st.Reclaims {
		k.Rests[d] = max(0, st.Reclaims[d].Rest.Sub(now))
	}
	return k
}

// SameKept says whether the same is kept of two states, but for when their last
// housekeeping pass was.
func (st *State) SameKept(other *State) bool {
	same := st.Thresholds == other.Thresholds && slices.EqualFunc(st.InFlight, other.InFlight, InFlight.SameKept) && slices.Equal(st.Refused, other.Refused) && slices.Equal(st.Steps, other.Steps) && slices.Equal(st.Restarts, other.Restarts)
	for c := range st.Pressure {
		same = same && st.Pressure[c].LastObserved == other.Pressure[c].LastObserved
	}
	for c := range st.Relief {
		same = same && (st.Relief[c] == other.Relief[c] || st.Relief[c].Since.IsZero() && other.Relief[c].Since.IsZero())
	}
	for d := range st.Reclaims {
		same = same && st.Reclaims[d].Rest == other.Reclaims[d].Rest
	}
	return same
}

// SameKept says whether the same is kept of two victims, but for Decided and Reported,
// which follow from the uid and the start.
func (f InFlight) SameKept(other InFlight) bool {
	return f.UID == other.UID && f.Signal == other.Signal && f.Hard == other.Hard && f.Since == other.Since && f.Grace == other.Grace && f.Patience == other.Patience
}

// Restore is the state that was kept so long ago, as far as the configuration
// still has its thresholds: a condition needs any threshold that it was raised
// under. Victims are restored as KeptVictim.Restore says.
func (k *Kept) Restore(cfg *Config, now time.Time, ago time.Duration) State {
	before := func(since time.Duration) time.Time { return now.Add(-ago - max(0, since)) }
	st := State{Looked: before(k.Looked)}
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		at := slices.IndexFunc(k.Thresholds, func(kept KeptThreshold) bool { return kept.is(t) })
		if at < 0 {
			continue
		}
		if kept := &k.Thresholds[at]; kept.Met != nil {
			st.Thresholds[i] = Standing{FirstObserved: before(*kept.Met), Acting: kept.Acting}
		}
		c := t.Signal.Condition()
		if last, raised := k.Pressure[c.String()]; raised {
			st.Pressure[c].LastObserved, st.Refused = before(last), k.Refused
		}
	}
	for c := range st.Relief {
		r, kept := k.Relief[Condition(c).String()]
		signal, err := ParseSignal(r.Signal)
		if kept && err == nil && cfg.has(signal) {
			st.Relief[c] = Relief{signal, before(r.Since), r.Available, r.Held, r.Victim, r.Outside, r.Group}
		}
	}
	for i := range k.InFlight {
		if f, is := k.InFlight[i].Restore(cfg, now, ago); is {
			st.InFlight = append(st.InFlight, f)
		}
	}
	for _, kept := range k.Restarts {
		if signal, err := ParseSignal(kept.Signal); err == nil {
			st.Restarts = append(st.Restarts, RestartedContainer{kept.UID, kept.Container, signal, kept.Hard, before(kept.Since), kept.Failed})
		}
	}
	for _, kept := range k.Steps {
		step, err := ParseStep(kept.Step)
		cause, is := parseCause(kept.Cause)
		if err != nil || !is {
			continue
		}
		t := StepTaken{Step: step, UID: kept.UID, Container: kept.Container, Cause: cause, Since: before(kept.Since), Last: before(kept.Last), Over: kept.Over, Bytes: kept.Bytes}
		if kept.Clear != nil {
			t.Clear = before(*kept.Clear)
		}
		st.Steps = append(st.Steps, t)
	}
	for d, rest := range k.Rests {
		if rest = min(rest, reclaimLongRest) - ago; rest > 0 && k.Layout == cfg.Layout {
			st.Reclaims[d].Rest = now.Add(rest)
		}
	}
	return st
}

// Restore is the victim that was kept so long ago, unattended. It is none where it is
// overdue by now, or where the configuration evicts for no threshold of its signal and
// kind, unless it is reported: then it has at most the grace of a hard victim left. What it
// held and whether it had ended is not kept.
func (v *KeptVictim) Restore(cfg *Config, now time.Time, ago time.Duration) (f InFlight, is bool) {
	f = InFlight{UID: v.UID, Container: v.Container, Decided: v.Decided, Hard: v.Hard, Since: now.Add(-ago - max(0, v.Since)), Grace: v.Grace, Unattended: true, Reported: v.Reported}
	if f.Decided.IsZero() {
		f.Decided = f.Since
	}
	switch {
	case v.Patience != nil:
		f.Patience = *v.Patience
	case !f.Hard:
		f.Patience = min(cfg.SoftPatience, f.Grace)
		f.Grace -= f.Patience
	}
	for s := range signals {
		if f.Signal = Signal(s); f.Signal.String() != v.Signal {
			continue
		}
		configured := cfg.evictsFor(&f)
		f.Hard = f.Hard || !configured
		return f, f.Reported || configured && !f.Overdue(now)
	}
	return f, false
}

func (c *Config) has(s Signal) bool {
	return slices.ContainsFunc(c.Thresholds, func(t Threshold) bool { return t.Signal == s })
}

// evictsFor says whether a victim could have been chosen under the configuration.
func (c *Config) evictsFor(f *InFlight) bool {
	if f.Signal == Admission { // under a condition, which some threshold raises
		return len(c.Thresholds) > 0
	}
	if int(f.Signal) >= NumSignals {
		return c.LocalStorageCapacityIsolation
	}
	return slices.ContainsFunc(c.Thresholds, func(t Threshold) bool { return t.Signal == f.Signal && t.Hard() == f.Hard })
}
