package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
)

// openJournal opens the journal. Without an API server a journal that cannot be opened is
// only logged.
func openJournal(file *config.EvictdConfiguration, log *slog.Logger) (*journal.Journal, error) {
	opened, err := journal.Open(cmp.Or(file.StateDir, DefaultStateDir), log)
	if err == nil {
		return opened, nil
	}
	if hasAPI(&file.Run) {
		return nil, cli.BadInput(fmt.Errorf("--state-dir: %w", err))
	}
	log.Warn("graces, conditions and the ages of images will not survive a restart", "error", err)
	return nil, nil
}

// resume restores the state of the loop from the journal, and returns the Keeper that writes
// it from now on. With an API server, a victim without an unreported eviction waited for the
// Eviction API; the loop ranks it again.
func (d *Daemon) resume() *control.Keeper {
	keeper := control.NewKeeper(d.journal, osprocess.Now, d.log)
	state := keeper.Resume(&d.cfg.Eviction)
	if d.cluster.speaksToAPI() {
		unreported := d.cluster.agent.Unreported()
		state.InFlight = slices.DeleteFunc(state.InFlight, func(f eviction.InFlight) bool {
			return !slices.ContainsFunc(unreported, func(i wire.Intent) bool { return i.UID == f.UID && i.Ended.IsZero() })
		})
	}
	if d.cluster != nil {
		for _, f := range state.InFlight {
			delete(d.cluster.interrupted, f.UID) // the loop kills it
		}
	}
	d.loop.Resume(state)
	return keeper
}

// runJournal writes the journal until stop is called, which waits for the last write.
func (d *Daemon) runJournal() (stop func()) {
	if d.journal == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.journal.Run(ctx); err != nil {
			d.log.Error("the end of the journal could not be written", "error", err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
