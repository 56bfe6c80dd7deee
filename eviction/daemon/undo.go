package daemon

import "github.com/evictd/evictd/eviction/undo"

// openChanges puts back what daemons that were killed left changed, and makes the
// log of this one.
func (d *Daemon) openChanges() {
	undone, err := undo.Recover(d.runtimeDir)
	for _, file := range undone {
		d.log.Info("put back what an evictd before this one had changed", "file", file)
	}
	if err != nil {
		d.log.Warn("what an evictd before this one had changed could not be put back; evictd undo tries again", "error", err)
	}
	if d.changes, err = undo.Open(d.runtimeDir); err != nil {
		d.log.Warn("victims may be slow to die: what would give them the processor could not be undone if evictd were killed", "error", err)
	}
	d.tracker.changes = d.changes
}
