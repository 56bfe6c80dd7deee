package daemon

import (
	"log/slog"
	"path/filepath"

	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/nodestatus"
)

// KeptDirs are the directories of the undo logs of what stays changed while an evictd that was killed
// is started again, below that of the others.
func KeptDirs(runtimeDir string) []string {
	return []string{memoryHighDir(runtimeDir), restartBanDir(runtimeDir)}
}

func memoryHighDir(runtimeDir string) string { return filepath.Join(runtimeDir, "memory-high") }

func restartBanDir(runtimeDir string) string { return filepath.Join(runtimeDir, "restart-bans") }

// openChanges restores the settings that killed daemons have changed, and opens the undo logs
// of this one.
func (d *Daemon) openChanges() {
	restoreEarlier(d.runtimeDir, d.log)
	if d.memoryHigh == nil {
		restoreEarlier(memoryHighDir(d.runtimeDir), d.log)
	}
	var err error
	if d.changes, err = undo.Open(d.runtimeDir); err != nil {
		d.log.Warn("victims may exit slowly: their cpu.weight is not raised, since it could not be restored if evictd were killed", "error", err)
	}
	d.tracker.changes = d.changes
	besideKubelet := d.node.mode != nodestatus.Native
	if d.node.cgroups == nil || !besideKubelet || !d.cluster.speaksToAPI() {
		restoreEarlier(restartBanDir(d.runtimeDir), d.log)
		return
	}
	if d.tracker.ban, err = newRestartBan(d.node.cgroups, restartBanDir(d.runtimeDir), d.log); err != nil {
		d.log.Warn("the kubelet can start the containers of evicted pods again, which are then killed", "error", err)
		d.tracker.ban = nil
	}
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
