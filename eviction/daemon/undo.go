package daemon

import (
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/nodestatus"
)

// RecoverAfter restores the settings that an evictd has left changed, and returns the written files. The service
// result is $SERVICE_RESULT of systemd.exec(5), or empty. After a kill memory.high and the restart bans are left, once, to the
// evictd that is started next. After success all bans that are left are those of evictions that the API server has, and stay.
func RecoverAfter(runtimeDir, serviceResult string) (undone []string, err error) {
	undone, err = undo.Recover(runtimeDir)
	kept, recoverKept := []string{memoryHighDir(runtimeDir), restartBanDir(runtimeDir)}, undo.Recover
	switch serviceResult {
	case "signal", "core-dump", "watchdog":
		recoverKept = undo.Defer
	case "success":
		kept = kept[:1]
	}
	for _, dir := range kept {
		more, fault := recoverKept(dir)
		undone, err = append(undone, more...), errors.Join(err, fault)
	}
	return undone, err
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
