package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction/undo"
)

// restartBan keeps the kubelet from starting containers again in the cgroups of pods that have
// ended by an eviction, until the kubelet knows it: the kernel makes no cgroup there (v2), or
// refuses forks (v1), and runc forks after it has joined the cgroup of a new container. Any goroutine
// may use it. A nil restartBan bans nothing.
type restartBan struct {
	cgroups *cgroup.System
	dir     string // of the undo log
	changes *undo.Log
	log     *slog.Logger

	mu sync.Mutex
	of map[types.UID]*ban
	// earlier: the bans of an evictd that was killed last, which end at earlierEnd if that is set.
	earlier    bool
	earlierEnd time.Time
}

// ban is that of a pod.
type ban struct {
	*undo.Change
	file string
	// followed: the pod was among those of follow. It is not at once when its kill ends.
	followed bool
	end      time.Time // set once the API server has the eviction
}

// learning is how long a kubelet may take to end a pod whose eviction the API server has: until then it
// may be starting a container of the pod.
const learning = time.Minute

// newRestartBan makes a restartBan that keeps its undo log in a directory, where the log of an
// evictd that was killed may be.
func newRestartBan(cgroups *cgroup.System, dir string, log *slog.Logger) (*restartBan, error) {
	b := &restartBan{cgroups: cgroups, dir: dir, log: log, of: map[types.UID]*ban{}, earlier: undo.Recorded(dir)}
	var err error
	b.changes, err = undo.Open(dir)
	return b, err
}

// begin bans restarts in a pod's cgroup, and says whether they were not banned before.
func (b *restartBan) begin(uid types.UID, group string) (begun bool) {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	setting, ok := b.cgroups.NoStartsSetting(group)
	if b.of[uid] != nil || !ok {
		return false
	}
	change, err := b.changes.Set(setting.File, setting.Value)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			b.log.Warn("the kubelet can start the containers of an evicted pod again, which are then killed", "cgroup", group, "error", err)
		}
		return false
	}
	b.of[uid] = &ban{Change: change, file: setting.File}
	return true
}

// follow ends the bans of pods whose cgroup does not exist any more, and those of pods that have not
// been among those that have ended, and whose eviction the API server does not have, for some time; the
// bans of an earlier evictd where no eviction has been unreported for that time.
func (b *restartBan) follow(now time.Time, ended []types.UID, unreported int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if unreported > 0 {
		b.earlierEnd = time.Time{}
	} else if b.earlierEnd.IsZero() {
		b.earlierEnd = now.Add(learning)
	}
	b.endOf(!b.earlierEnd.IsZero() && now.After(b.earlierEnd), func(uid types.UID, begun *ban) bool {
		switch is := slices.Contains(ended, uid); {
		case is:
			begun.followed, begun.end = true, time.Time{}
		case begun.followed && begun.end.IsZero():
			begun.end = now.Add(learning)
		}
		_, err := os.Stat(begun.file)
		return errors.Is(err, fs.ErrNotExist) || !begun.end.IsZero() && now.After(begun.end)
	})
}

// end ends all bans.
func (b *restartBan) end() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endOf(true, func(types.UID, *ban) bool { return true })
}

// endOf ends the bans of pods, and of an earlier evictd. The caller holds mu.
func (b *restartBan) endOf(earlier bool, ends func(types.UID, *ban) bool) {
	for uid, begun := range b.of {
		if !ends(uid, begun) {
			continue
		}
		if err := begun.Undo(); err != nil {
			b.log.Warn("a cgroup setting could not be restored; evictd undo tries again", "error", err)
		}
		delete(b.of, uid)
	}
	if earlier && b.earlier {
		restoreEarlier(b.dir, b.log)
		b.earlier = false
	}
}

// close ends the bans of pods whose eviction is unreported: no kubelet learns of that while no evictd runs. The
// others are left to the next evictd, in the log: the kubelet may be starting a container.
func (b *restartBan) close(unreported []types.UID) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endOf(len(unreported) > 0, func(uid types.UID, _ *ban) bool { return slices.Contains(unreported, uid) })
	err := b.changes.Leave()
	os.Remove(b.dir) // where it has no log
	return err
}
