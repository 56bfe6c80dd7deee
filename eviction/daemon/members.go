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

// members finds the processes of a pod.
type members struct {
	group      *podCgroup  // nil without a cgroup
	target     kill.Target // nil where nothing was found
	containers int         // how many the pod has
	// runtime is the pod as the container runtime has it now; nil without one.
	runtime atomic.Pointer[pods.RuntimePod]
	// bare is the pod as runc has it; nil where somebody else knows it.
	bare atomic.Pointer[pods.RuncPod]
}

// child names a container's group below the pod's: as the runtime told it, or
// named after the container where there is no runtime.
func (m *members) child(container string) string {
	if b := m.bare.Load(); b != nil {
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
	children, _ := m.group.cgroups.Children(m.group.path) // a pod that is gone has none
	for _, child := range children {
		if strings.Contains(child, c.ID) {
			return child
		}
	}
	return ""
}

// processes are those of a container, or with "" all of the pod's.
func (m *members) processes(container string, into []int) ([]int, error) {
	switch {
	case m.target == nil:
		return into, nil
	case container == "":
		return m.target.AppendProcesses(into)
	}
	return m.Processes(container, into)
}

// Processes lists a container's processes: those of the group of its name, or
// all of the pod where that has no groups and the container is the only one.
func (m *members) Processes(container string, into []int) ([]int, error) {
	into, err := m.list(container, into)
	if errors.Is(err, cgroup.ErrGone) { // pods end
		err = nil
	}
	return into, err
}

func (m *members) list(container string, into []int) ([]int, error) {
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
		return opened.AppendProcesses(into)
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
