package control

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/internal/osprocess"
)

// Journal is what outlives the process. It never waits.
type Journal interface {
	Entries(kind string) []journal.Entry
	Put(kind, id string, value any) error
}

// stateKind is the journal's kind of the state, of which there is one.
const stateKind = "state"

// entry is the state in the journal, and when that was so.
type entry struct {
	At osprocess.Instant `json:"at"`
	eviction.Kept
}

// Keeper keeps in a journal the part of the state with which the next process
// continues. One goroutine gives it the reports of the loop.
type Keeper struct {
	journal Journal
	clock   func() (osprocess.Instant, error)
	log     *slog.Logger
	// last is what was written, under which configuration.
	last   eviction.State
	under  *eviction.Config
	faulty bool
}

// NewKeeper makes a Keeper that asks a clock for the time.
func NewKeeper(journal Journal, clock func() (osprocess.Instant, error), log *slog.Logger) *Keeper {
	return &Keeper{journal: journal, clock: clock, log: log}
}

// Resume returns what was kept before the start as far as the configuration still
// asks for it, for Loop.Resume.
func (k *Keeper) Resume(cfg *eviction.Config) eviction.State {
	for _, e := range k.journal.Entries(stateKind) {
		st, ago, err := k.restore(cfg, e.Data)
		if err != nil {
			k.log.Warn("the state from before the start is not restored: graces and conditions start again", "error", err)
			continue
		}
		k.logRestored(cfg, &st, ago)
		return st
	}
	return eviction.State{}
}

func (k *Keeper) restore(cfg *eviction.Config, data []byte) (st eviction.State, ago time.Duration, err error) {
	var kept entry
	if err := json.Unmarshal(data, &kept); err != nil {
		return st, 0, fmt.Errorf("read kept state: %w", err)
	}
	now, err := k.clock()
	if err != nil {
		return st, 0, err
	}
	ago, known := now.Since(kept.At)
	if !known {
		return st, 0, fmt.Errorf("its age is unknown: the clock was set back since %v", kept.At.Wall)
	}
	st = kept.Restore(cfg, time.Now(), ago)
	if now.Boot != kept.At.Boot { // no process outlives the boot
		st.InFlight = nil
	}
	return st, ago, nil
}

// logRestored logs what was restored, if anything was.
func (k *Keeper) logRestored(cfg *eviction.Config, st *eviction.State, ago time.Duration) {
	var graces, conditions []string
	for i := range cfg.Thresholds {
		if t := &cfg.Thresholds[i]; !t.Hard() && !st.Thresholds[i].FirstObserved.IsZero() {
			graces = append(graces, t.Signal.String())
		}
	}
	for c := range st.Pressure {
		if !st.Pressure[c].LastObserved.IsZero() {
			conditions = append(conditions, eviction.Condition(c).String())
		}
	}
	if len(graces)+len(conditions)+len(st.InFlight) > 0 {
		k.log.Info("restored the state from before the start", "ago", ago.Round(time.Millisecond).String(), "graces", graces, "conditions", conditions, "victims", len(st.InFlight))
	}
}

// Record keeps the state of a report where it differs from what was kept. A
// threshold that is met moves it on with each housekeeping pass; while none is,
// nothing is written.
func (k *Keeper) Record(r Report) {
	if r.Ended != nil || r.Eviction == k.under && r.State.SameKept(&k.last) {
		return
	}
	state := r.State
	if r.DryRun { // no victim is being killed
		state.InFlight = nil
	}
	at, err := k.clock()
	if err == nil {
		err = k.journal.Put(stateKind, "loop", entry{at, state.Keep(r.Eviction, time.Now())})
	}
	if err != nil && !k.faulty {
		k.log.Error("graces and conditions would not survive a crash", "error", err)
	}
	k.faulty = err != nil
	if err == nil {
		k.last, k.under = r.State, r.Eviction
	}
}
