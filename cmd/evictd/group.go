package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/stats"
)

// group is a pod's cgroup for those who end the pod: a kill.Target. It is opened
// when it is first used, for the pod may be known before it runs.
type group struct {
	cgroups *cgroup.System
	path    string
	above   string    // the group of all pods
	changes *undo.Log // nil where nothing may be changed for a while
	log     *slog.Logger

	mu     sync.Mutex
	opened *cgroup.Group
	frozen *undo.Change
}

var _ kill.CPUBooster = (*group)(nil)

// use does something with the open group; with the one that has taken its place
// where it is gone.
func (g *group) use(do func(*cgroup.Group) error) error {
	opened, fresh, err := g.open(nil)
	if err == nil {
		err = do(opened)
	}
	if fresh || !errors.Is(err, cgroup.ErrGone) {
		return err
	}
	if opened, _, err = g.open(opened); err != nil {
		return err
	}
	return do(opened)
}

// open returns the open group unless that is the one that is gone.
func (g *group) open(gone *cgroup.Group) (opened *cgroup.Group, fresh bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil && g.opened != gone {
		return g.opened, false, nil
	}
	if opened, err = g.cgroups.Open(g.path); err != nil {
		return nil, true, err
	}
	runtime.AddCleanup(g, func(opened *cgroup.Group) { opened.Close() }, opened)
	g.opened = opened
	return opened, true, nil
}

// AppendProcesses lists the processes in the group and below it.
func (g *group) AppendProcesses(pids []int) (all []int, err error) {
	err = g.use(func(opened *cgroup.Group) error {
		all, err = opened.AppendProcesses(pids)
		return err
	})
	return all, err
}

// Kill kills them all at once where the kernel can.
func (g *group) Kill() error { return g.use((*cgroup.Group).Kill) }

// Populated says whether there are any.
func (g *group) Populated() (populated bool, err error) {
	err = g.use(func(opened *cgroup.Group) error {
		populated, err = opened.Populated()
		return err
	})
	return populated, err
}

// Freeze stops them until Thaw, or until evictd has ended.
func (g *group) Freeze() error {
	setting, ok := g.cgroups.FreezeSetting(g.path)
	if !ok || g.changes == nil {
		return errors.ErrUnsupported
	}
	change, err := g.changes.Set(setting.File, setting.Value)
	g.frozen = change
	return err
}

// Thaw lets frozen processes die, whoever froze them.
func (g *group) Thaw() error {
	err := g.use((*cgroup.Group).Thaw)
	if g.frozen != nil {
		err = errors.Join(err, g.frozen.Undo())
		g.frozen = nil
	}
	return err
}

// BoostCPU gives the group, and those between it and the pods' group, all of the
// processor that there is. The kubelet gives besteffort pods together the weight
// of a shell's background job: one that is killed there can take seconds to die.
func (g *group) BoostCPU() (undone func(), faults error) {
	var changed []*undo.Change
	undone = func() {
		for _, change := range slices.Backward(changed) {
			if err := change.Undo(); err != nil {
				g.log.Warn("a setting could not be put back; evictd undo tries again", "error", err)
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
	return undone, faults
}

// usage is what the group holds in memory now.
func (g *group) usage() stats.Amount {
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
