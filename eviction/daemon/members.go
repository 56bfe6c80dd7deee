package daemon

import (
	"errors"
	"path"
	"strings"
	"sync/atomic"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/pods"
)

// members lists the processes of a pod and of its containers.
type members struct {
	group      *podCgroup  // nil without a cgroup
	target     kill.Target // nil if there is nothing to kill
	containers int         // number of them
	// runtime is the pod in the runtime's inventory; nil if it is not there.
	runtime atomic.Pointer[pods.RuntimePod]
	// runc is the pod as runc has it; nil unless only runc has it.
	runc atomic.Pointer[pods.RuncPod]
}

// child is the name of a container's cgroup below the pod's: by the runtime, or the
// container's name where no runtime has the pod. It is "" if unknown.
func (m *members) child(container string) string {
	if b := m.runc.Load(); b != nil {
		return b.Children[container]
	}
	r := m.runtime.Load()
	if r == nil {
		return container
	}
	c := r.Current(container)
	if c == nil {
		return ""
	}
	if c.Cgroup != "" {
		return c.Cgroup
	}
	children, _ := m.group.cgroups.Children(m.group.path) // none if the pod has ended
	for _, child := range children {
		if strings.Contains(child, c.ID) {
			return child
		}
	}
	return ""
}

// processes appends those of a container, or of the pod for "".
func (m *members) processes(container string, into []int) ([]int, error) {
	switch {
	case m.target == nil:
		return into, nil
	case container == "":
		return m.target.AppendProcesses(into)
	}
	return m.list(container, into, (*cgroup.Group).AppendProcesses)
}

// Processes appends the processes in a container's own cgroup, and not those that programs of the
// container have put in cgroups below it; see list.
func (m *members) Processes(container string, into []int) ([]int, error) {
	return m.list(container, into, (*cgroup.Group).AppendOwnProcesses)
}

// list appends a container's processes: those of its cgroup, or all of the pod's where
// that has no cgroups below it and the container is the only one.
func (m *members) list(container string, into []int, of func(*cgroup.Group, []int) ([]int, error)) ([]int, error) {
	into, err := m.listGroup(container, into, of)
	if errors.Is(err, cgroup.ErrGone) { // the pod has ended
		err = nil
	}
	return into, err
}

func (m *members) listGroup(container string, into []int, of func(*cgroup.Group, []int) ([]int, error)) ([]int, error) {
	switch {
	case m.group == nil && m.target == nil:
		return into, nil
	case m.group == nil:
		if m.containers == 1 {
			return m.target.AppendProcesses(into)
		}
		return into, nil
	}
	g := m.group
	child := m.child(container)
	if child == "" {
		return into, nil
	}
	opened, err := g.cgroups.Open(path.Join(g.path, child))
	if err == nil {
		defer opened.Close()
		return of(opened, into)
	}
	if !errors.Is(err, cgroup.ErrGone) {
		return into, err
	}
	children, err := g.cgroups.Children(g.path)
	if err != nil || len(children) > 0 || m.containers > 1 {
		return into, err
	}
	return g.AppendProcesses(into)
}
