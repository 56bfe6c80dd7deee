package daemon

import (
	"context"
	"errors"
	"path"
	"sync"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
)

// containerGroup is the cgroup of a container as a kill.Target: as the container runs when it is used first, not as a
// kubelet starts it again. Its methods may be called from any goroutine.
type containerGroup struct {
	pod       *podCgroup
	members   *members
	container string

	mu    sync.Mutex
	group *podCgroup // nil before the first use
}

var _ kill.CPUBooster = (*containerGroup)(nil)

// find is the cgroup; the error is cgroup.ErrGone where the container does not run.
func (c *containerGroup) find() (*podCgroup, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group == nil {
		child := c.members.child(c.container)
		if child == "" {
			return nil, cgroup.ErrGone
		}
		p := c.pod
		c.group = &podCgroup{cgroups: p.cgroups, path: path.Join(p.path, child), above: p.above, changes: p.changes, uid: p.uid, log: p.log, only: true}
	}
	return c.group, nil
}

// gone says whether the container that it is of has ended.
func (c *containerGroup) gone() bool {
	c.mu.Lock()
	group := c.group
	c.mu.Unlock()
	if group == nil {
		return false
	}
	_, err := group.Populated()
	return errors.Is(err, cgroup.ErrGone)
}

func (c *containerGroup) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group != nil {
		c.group.close()
	}
}

// AppendProcesses is as of podCgroup, and so are the others.
func (c *containerGroup) AppendProcesses(pids []int) ([]int, error) {
	group, err := c.find()
	if err != nil {
		return pids, err
	}
	return group.AppendProcesses(pids)
}

// Kill kills all processes at once, if the kernel has cgroup.kill.
func (c *containerGroup) Kill() error {
	group, err := c.find()
	if err != nil {
		return err
	}
	return group.Kill()
}

// Populated says whether there are processes in the group or below it.
func (c *containerGroup) Populated() (bool, error) {
	group, err := c.find()
	if err != nil {
		return false, err
	}
	return group.Populated()
}

// Freeze stops the processes until Thaw, or until evictd has ended.
func (c *containerGroup) Freeze() error {
	group, err := c.find()
	if err != nil {
		return err
	}
	return group.Freeze()
}

// Thaw lets frozen processes run, so that signals reach them.
func (c *containerGroup) Thaw() error {
	group, err := c.find()
	if err != nil {
		return err
	}
	return group.Thaw()
}

// BoostCPU is as of podCgroup, with the pod among the groups above.
func (c *containerGroup) BoostCPU() (undo func(), err error) {
	group, err := c.find()
	if err != nil {
		return func() {}, nil
	}
	return group.BoostCPU()
}

// FreeMemory has the kernel free the page cache of the group.
func (c *containerGroup) FreeMemory(ctx context.Context) error {
	group, err := c.find()
	if err != nil {
		return err
	}
	return group.FreeMemory(ctx)
}

// usage is the memory of the group now; 0 if it is removed.
func (c *containerGroup) usage() stats.Amount {
	group, err := c.find()
	if err != nil {
		return stats.Known(0)
	}
	return group.usage()
}

// restartable are the containers of a pod that can be ended alone.
type restartable struct {
	mu     sync.Mutex
	groups []*containerGroup
}

// newRestartable is nil for a pod without a cgroup, and for one that has a single container.
func newRestartable(p *trackedPod) *restartable {
	if p.group == nil || len(p.Containers) < 2 {
		return nil
	}
	r := &restartable{}
	for i := range p.Containers {
		r.groups = append(r.groups, &containerGroup{pod: p.group, members: p.members, container: p.Containers[i].Name})
	}
	return r
}

// at is what there is to kill of a container. It opens nothing.
func (r *restartable) at(i int) (kill.Target, func() stats.Amount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.groups[i], r.groups[i].usage
}

// current is as at, for the container that runs now: one that has ended is replaced.
func (r *restartable) current(i int) (kill.Target, func() stats.Amount) {
	r.mu.Lock()
	group := r.groups[i]
	r.mu.Unlock()
	if group.gone() {
		next := &containerGroup{pod: group.pod, members: group.members, container: group.container}
		r.mu.Lock()
		r.groups[i] = next
		r.mu.Unlock()
		group.close()
	}
	return r.at(i)
}

// close closes the groups; r may be nil.
func (r *restartable) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, group := range r.groups {
		group.close()
	}
}
