package daemon

import "github.com/evictd/evictd/eviction/undo"

// openChanges restores the settings that killed daemons have changed, and opens the undo log
// of this one.
func (d *Daemon) openChanges() {
	undone, err := undo.Recover(d.runtimeDir)
	for _, file := range undone {
		d.log.Info("restored a setting that an earlier evictd had changed", "file", file)
	}
	if err != nil {
		d.log.Warn("settings of an earlier evictd could not be restored; evictd undo tries again", "error", err)
	}
	if d.changes, err = undo.Open(d.runtimeDir); err != nil {
		d.log.Warn("victims may exit slowly: their cpu.weight is not raised, since it could not be restored if evictd were killed", "error", err)
	}
	d.tracker.changes = d.changes
}
