package daemon

import (
	"log/slog"
	"path/filepath"

	"github.com/evictd/evictd/eviction/undo"
)

// MemoryHighDir is the directory of the undo log of memory.high, below that of the others.
func MemoryHighDir(runtimeDir string) string { return filepath.Join(runtimeDir, "memory-high") }

// openChanges restores the settings that killed daemons have changed, and opens the undo log
// of this one.
func (d *Daemon) openChanges() {
	restoreEarlier(d.runtimeDir, d.log)
	if d.memoryHigh == nil {
		restoreEarlier(MemoryHighDir(d.runtimeDir), d.log)
	}
	var err error
	if d.changes, err = undo.Open(d.runtimeDir); err != nil {
		d.log.Warn("victims may exit slowly: their cpu.weight is not raised, since it could not be restored if evictd were killed", "error", err)
	}
	d.tracker.changes = d.changes
}

func restoreEarlier(dir string, log *slog.Logger) {
	undone, err := undo.Recover(dir)
	for _, file := range undone {
		log.Info("restored a setting that an earlier evictd had changed", "file", file)
	}
	if err != nil {
		log.Warn("settings of an earlier evictd could not be restored; evictd undo tries again", "error", err)
	}
}
