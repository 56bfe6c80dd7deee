// Package checkpoint keeps in a journal what the next process continues with: the state of the
// loop, and each eviction until its pod has ended and the API server has recorded the
// report. It decides nothing.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/intent"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
)

// Journal is what outlives the process. It never waits.
type Journal interface {
	Entries(kind string) []journal.Entry
	Put(kind, id string, value any) error
	Drop(kind, id string)
	// Changes counts those by Put and Drop. Written has a function called, on another
	// goroutine, with how many of them are durable.
	Changes() uint64
	Written(func(changes uint64))
}

// stateKind is the journal's kind of the state, of which there is one.
const stateKind = "state"

// state is the state in the journal, and when that was so. Its victims are containers, and in what earlier versions
// wrote pods: each eviction of a pod has an entry of its own.
type state struct {
	At osprocess.Instant `json:"at"`
	eviction.Kept
}

// Keeper keeps the state and the evictions. One goroutine gives it the reports of the
// loop; the methods of evictions may be called from any.
type Keeper struct {
	journal Journal
	intents *intent.File
	clock   func() (osprocess.Instant, error)
	api     bool
	log     *slog.Logger
	// last is what was written, under which configuration.
	last   eviction.State
	under  *eviction.Config
	faulty bool

	changed chan struct{}
	mu      sync.Mutex
	records []*record // oldest first
	// overrides came before the report of the eviction.
	overrides map[types.UID]string
	dropped   []wire.Intent // see Dropped
}

// New makes a Keeper that asks a clock for the time. Evictions are in intents, which may be nil, until
// the journal has them. api says that evictions are reported to an API server.
func New(journal Journal, intents *intent.File, clock func() (osprocess.Instant, error), api bool, log *slog.Logger) *Keeper {
	k := &Keeper{journal: journal, intents: intents, clock: clock, api: api, log: log, changed: make(chan struct{}, 1), overrides: map[types.UID]string{}}
	journal.Written(k.written)
	return k
}

// Resume returns what was kept before the start as far as the configuration still
// asks for it, for Loop.Resume. Call it once, before the other methods.
func (k *Keeper) Resume(cfg *eviction.Config) (st eviction.State) {
	now, err := k.clock()
	var before state
	var ago time.Duration
	for _, e := range k.journal.Entries(stateKind) {
		if err == nil {
			before, ago, err = read(e.Data, now)
		}
	}
	k.readEvictions(&before)
	k.readIntents(now)
	k.dropRequested()
	if err != nil {
		k.log.Warn("the state from before the start is not restored: graces and conditions start again", "error", err)
	} else if !before.At.Wall.IsZero() {
		before.InFlight = containers(before.InFlight)
		st = before.Restore(cfg, time.Now(), ago)
	}
	st.InFlight = append(k.resumeEvictions(cfg, now), st.InFlight...)
	k.logRestored(cfg, &st, ago)
	return st
}

func read(data []byte, now osprocess.Instant) (before state, ago time.Duration, err error) {
	if err := json.Unmarshal(data, &before); err != nil {
		return state{}, 0, fmt.Errorf("read kept state: %w", err)
	}
	ago, known := now.Since(before.At)
	if !known {
		return state{}, 0, fmt.Errorf("its age is unknown: the clock was set back since %v", before.At.Wall)
	}
	return before, ago, nil
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
	if n := len(k.Unreported()); n > 0 {
		k.log.Info("evictions from before the start are not reported yet", "evictions", n)
	}
}

// Record keeps what a report changes. A threshold that is met changes the state with each
// housekeeping pass; while none is, nothing is written.
func (k *Keeper) Record(r control.Report) {
	if r.Ended != nil && r.Ended.Container != "" { // a restart is no eviction
		return
	}
	if r.Ended != nil {
		k.end(r.Ended, r.At)
		return
	}
	if r.Eviction == k.under && r.State.SameKept(&k.last) {
		return
	}
	at, err := k.clock()
	kept := r.State.Keep(r.Eviction, time.Now())
	victims := kept.InFlight
	kept.InFlight = nil
	if !r.DryRun { // in which no victim is being killed
		kept.InFlight = containers(victims)
		k.follow(&r, victims, at)
	}
	if err == nil {
		err = k.journal.Put(stateKind, "loop", state{at, kept})
	}
	k.logFault(err)
	if err == nil {
		k.last, k.under = r.State, r.Eviction
	}
}

// containers are the victims that are containers: their restarts are no evictions.
func containers(victims []eviction.KeptVictim) (all []eviction.KeptVictim) {
	for _, v := range victims {
		if v.Container != "" {
			all = append(all, v)
		}
	}
	return all
}

// logFault logs the first of several faults.
func (k *Keeper) logFault(err error) {
	if err != nil && !k.faulty {
		k.log.Error("graces and conditions would not survive a crash", "error", err)
	}
	k.faulty = err != nil
}
