package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/intent"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/internal/cli"
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

// openIntents maps the evictions that the journal does not have yet: a file of its own for each
// state directory. Without it evictd runs on.
func (d *Daemon) openIntents(stateDir string) error {
	dir, err := filepath.Abs(cmp.Or(stateDir, DefaultStateDir))
	if err == nil {
		d.intents, err = intent.Open(d.runtimeDir, "evictions-"+url.PathEscape(dir), d.log)
	}
	return err
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
