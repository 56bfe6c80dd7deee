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

// openJournal opens what survives a restart. Only an API server needs it.
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

// resume has the loop take up what was kept before the start, and returns what
// keeps it from now on. A victim that is nobody's promise to the API server had no
// leave to go yet and is chosen anew.
func (d *Daemon) resume() *control.Keeper {
	keeper := control.NewKeeper(d.journal, osprocess.Now, d.log)
	state := keeper.Resume(&d.cfg.Eviction)
	if d.cluster.speaksToAPI() {
		promised := d.cluster.agent.Unreported()
		state.InFlight = slices.DeleteFunc(state.InFlight, func(f eviction.InFlight) bool {
			return !slices.ContainsFunc(promised, func(i wire.Intent) bool { return i.UID == f.UID && i.Over.IsZero() })
		})
	}
	if d.cluster != nil {
		for _, f := range state.InFlight {
			delete(d.cluster.unended, f.UID) // the loop does it
		}
	}
	d.loop.Resume(state)
	return keeper
}

// record writes the journal until it is stopped, to the last.
func (d *Daemon) record() (stop func()) {
	if d.journal == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() {
		if err := d.journal.Run(ctx); err != nil {
			d.log.Error("the journal could not be written to the last", "error", err)
		}
	})
	return func() {
		cancel()
		recording.Wait()
	}
}
