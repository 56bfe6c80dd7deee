package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// The node: what it has, and below which available memory a pod is evicted.
const (
	nodeMemory = 512 * mib
	nodePIDs   = 256
	threshold  = 100 * mib
)

// node is a bounded cgroup; or, where none can be made, an amount of memory that
// the pods' processes are the only users of.
type node struct {
	cgroups *cgroup.System // nil where the node is a virtual one
	path    string
	group   *cgroup.Group
	pods    cgroup.Pods

	processes []*os.File // statm of the pods' processes, on a virtual node
}

// newNode makes the node's cgroup at the top of the hierarchy, where it is part
// of nobody's service. The error says why there can be none.
func newNode() (*node, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not root")
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		return nil, err
	}
	n := &node{cgroups: cgroups, path: "/evictd-playground-" + strconv.Itoa(os.Getpid())}
	n.pods = cgroup.PodsAt(path.Join(n.path, "kubepods"))
	err = cgroups.Create(n.path, cgroup.Limits{Memory: stats.Known(nodeMemory), PIDs: stats.Known(nodePIDs)})
	if err == nil {
		n.group, err = cgroups.Open(n.path)
	}
	if err == nil {
		// Enables the controllers down to the pods, where that can be refused.
		err = cgroups.Create(n.pods.Path(), cgroup.Limits{})
	}
	if err == nil {
		_, err = n.available()
	}
	if err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

func (n *node) String() string {
	if n.cgroups == nil {
		return fmt.Sprintf("virtual: %s, used by its pods alone, who are measured through procfs", size(nodeMemory))
	}
	return fmt.Sprintf("cgroup %s (%v): %s, %d tasks at most", n.path, n.cgroups.Version(), size(nodeMemory), nodePIDs)
}

// flags tell evictd of the node.
func (n *node) flags() []string {
	if n.cgroups == nil {
		return []string{"--node-memory", strconv.Itoa(nodeMemory)}
	}
	return []string{"--cgroup-root", n.path}
}

// container is the cgroup of a pod's container.
func (n *node) container(p *pod) string {
	return path.Join(n.pods.Pod(string(p.uid), p.class()), container)
}

// place puts the pod's process where it belongs.
func (n *node) place(p *pod) error {
	if n.cgroups == nil {
		statm, err := os.Open("/proc/" + strconv.Itoa(p.pid) + "/statm")
		n.processes = append(n.processes, statm)
		return err
	}
	var l cgroup.Limits
	if limit, limited := p.limits.Memory(), !p.limits.Memory().IsZero(); limited {
		l.Memory = stats.Known(limit.Value())
	}
	at := n.container(p)
	err := n.cgroups.Create(path.Dir(at), l)
	if err == nil {
		err = n.cgroups.Create(at, l)
	}
	if err == nil {
		err = n.cgroups.Add(at, p.pid)
	}
	return err
}

// available is what is left of the node's memory, bytes: its own reading, by the
// kubelet's formula.
func (n *node) available() (int64, error) {
	if n.cgroups == nil {
		return n.unused(), nil
	}
	var m stats.Memory
	if err := n.group.Memory(&m); err != nil {
		return 0, err
	}
	available, known := m.Available(stats.WorkingSetModel, false).Get()
	if !known {
		return 0, fmt.Errorf("the memory of cgroup %s cannot be measured", n.path)
	}
	return available, nil
}

// unused takes what the processes have for themselves off the virtual node: what
// is resident and not shared (proc_pid_statm(5), pages).
func (n *node) unused() int64 {
	left := int64(nodeMemory)
	var buf [128]byte
	for _, statm := range n.processes {
		length, _ := statm.ReadAt(buf[:], 0) // one that has ended reads as empty
		fields := strings.Fields(string(buf[:length]))
		if len(fields) < 3 {
			continue
		}
		resident, _ := strconv.ParseInt(fields[1], 10, 64)
		shared, _ := strconv.ParseInt(fields[2], 10, 64)
		left -= (resident - shared) * int64(os.Getpagesize())
	}
	return left
}

// kernelKills counts whom the kernel has killed for want of memory.
func (n *node) kernelKills(pods []*pod) (int64, error) {
	var kills int64
	for _, p := range pods {
		group, err := n.cgroups.Open(n.container(p))
		if err != nil {
			return 0, err
		}
		killed, err := group.OOMKills()
		group.Close()
		if err != nil {
			return 0, err
		}
		kills += killed.Or(0)
	}
	return kills, nil
}

// remove takes away what was made. No process may be left.
func (n *node) remove() error {
	for _, statm := range n.processes {
		statm.Close()
	}
	if n.group != nil {
		n.group.Close()
	}
	if n.cgroups == nil {
		return nil
	}
	return n.cgroups.Delete(n.path)
}

func size(bytes int64) string { return strconv.FormatInt(bytes/mib, 10) + "Mi" }
