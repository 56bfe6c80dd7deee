package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/stats"
)

// podCgroup is a pod's cgroup as a kill.Target. It opens the group at the first use, since
// a pod can be known before it runs, and keeps it open if there is room. Its methods may be called from any goroutine. After
// close they open the group for the time of the call.
type podCgroup struct {
	cgroups *cgroup.System
	path    string
	above   string    // the cgroup of all pods
	changes *undo.Log // nil in a dry run
	ban     *restartBan
	uid     types.UID
	log     *slog.Logger
	only    bool // a group that has the same path later is another

	mu     sync.Mutex
	opened *openGroup // nil while it is not open
	closed bool
	frozen *undo.Change
}

var _ kill.CPUBooster = (*podCgroup)(nil)

// openGroup is closed with its last user.
type openGroup struct {
	*cgroup.Group
	users int // calls in progress, and the podCgroup that keeps it open
}

// use calls do with the open group. Where the group has been removed, it calls do again
// with the group that has the same path now.
func (g *podCgroup) use(do func(*cgroup.Group) error) error {
	opened, fresh, err := g.acquire(nil)
	if err != nil {
		return err
	}
	err = do(opened.Group)
	if !fresh && !g.only && errors.Is(err, cgroup.ErrGone) {
		var again *openGroup
		if again, _, err = g.acquire(opened); err == nil {
			err = do(again.Group)
			g.release(again)
		}
	}
	g.release(opened)
	return err
}

// acquire returns the open group, unless that is the removed one; fresh says that this
// call has opened it. The caller releases it.
func (g *podCgroup) acquire(removed *openGroup) (opened *openGroup, fresh bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil && g.opened != removed {
		g.opened.users++
		return g.opened, false, nil
	}
	group, err := g.cgroups.Open(g.path)
	if err != nil {
		return nil, true, err
	}
	opened = &openGroup{group, 1}
	if g.opened != nil { // it was removed
		g.unkeep()
	}
	if !g.closed && g.cgroups.Room().Take() {
		opened.users++
		g.opened = opened
	}
	return opened, true, nil
}

func (g *podCgroup) release(opened *openGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(opened)
}

// unkeep keeps the open group open no longer than the calls in progress; g.mu is held.
func (g *podCgroup) unkeep() {
	g.drop(g.opened)
	g.opened = nil
	g.cgroups.Room().Give()
}

// drop removes a user; g.mu is held.
func (g *podCgroup) drop(opened *openGroup) {
	if opened.users--; opened.users == 0 {
		opened.Close()
	}
}

// close keeps the group open no longer than the calls in progress.
func (g *podCgroup) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		g.unkeep()
	}
	g.closed = true
}

// AppendProcesses lists the processes in the group and below it.
func (g *podCgroup) AppendProcesses(pids []int) (all []int, err error) {
	err = g.use(func(opened *cgroup.Group) error {
		all, err = opened.AppendProcesses(pids)
		return err
	})
	return all, err
}

// Kill kills all processes at once, if the kernel has cgroup.kill.
func (g *podCgroup) Kill() error { return g.use((*cgroup.Group).Kill) }

// Populated says whether there are processes in the group or below it.
func (g *podCgroup) Populated() (populated bool, err error) {
	err = g.use(func(opened *cgroup.Group) error {
		populated, err = opened.Populated()
		return err
	})
	return populated, err
}

// Freeze stops the processes until Thaw, or until evictd has ended.
func (g *podCgroup) Freeze() error {
	setting, ok := g.cgroups.FreezeSetting(g.path)
	if !ok || g.changes == nil {
		return errors.ErrUnsupported
	}
	change, err := g.changes.Set(setting.File, setting.Value)
	g.frozen = change
	return err
}

// Thaw lets frozen processes run, so that signals reach them.
func (g *podCgroup) Thaw() error {
	err := g.use((*cgroup.Group).Thaw)
	if g.frozen != nil {
		err = errors.Join(err, g.frozen.Undo())
		g.frozen = nil
	}
	return err
}

// ForbidStarts keeps the kubelet from starting the containers again, where there is one.
func (g *podCgroup) ForbidStarts() bool { return g.ban.begin(g.uid, g.path) }

// BoostCPU gives the group the highest cpu.weight and no cpu.max, and the groups between it and
// the pods' group at most four fifths of the processor, so that killed processes exit soon: the kubelet
// gives all BestEffort pods together cpu.weight 1. What programs of the pod have set below its containers is not restored.
func (g *podCgroup) BoostCPU() (undone func(), faults error) {
	var changed []*undo.Change
	undone = func() {
		for _, change := range slices.Backward(changed) {
			if err := change.Undo(); err != nil {
				g.log.Warn("a cgroup setting could not be restored; evictd undo tries again", "error", err)
			}
		}
	}
	if g.changes == nil {
		return undone, nil
	}
	settings, err := g.cgroups.CPUBoost(g.path, g.above)
	if err != nil {
		return undone, err
	}
	for _, s := range settings {
		change, err := g.changes.Set(s.File, s.Value)
		switch {
		case err == nil:
			changed = append(changed, change)
		case !errors.Is(err, fs.ErrNotExist):
			faults = errors.Join(faults, err)
		}
	}
	if err := g.use((*cgroup.Group).LiftQuotas); !errors.Is(err, cgroup.ErrGone) {
		faults = errors.Join(faults, err)
	}
	return undone, faults
}

// FreeMemory has the kernel free the page cache of the group.
func (g *podCgroup) FreeMemory(ctx context.Context) error { return g.cgroups.FreeMemory(ctx, g.path) }

// usage is the memory of the group now; 0 if it is removed.
func (g *podCgroup) usage() stats.Amount {
	var usage stats.Amount
	err := g.use(func(opened *cgroup.Group) (err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		usage, err = opened.Usage()
		return err
	})
	if errors.Is(err, cgroup.ErrGone) {
		return stats.Known(0)
	}
	return usage
}
