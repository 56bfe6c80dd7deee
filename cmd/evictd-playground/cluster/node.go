package cluster

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/cmd/evictd-playground/daemon"
	"github.com/evictd/evictd/cmd/evictd-playground/runner"
	"github.com/evictd/evictd/stats"
)

// A node: what it has, and below which available memory a pod is evicted.
const (
	nodeMemory = 256 * console.MiB
	nodePIDs   = 256
	threshold  = 40 * console.MiB
)

const (
	// transition is how long a condition outlives its cause once the script needs it no
	// longer.
	transition = 8 * time.Second
	// memoryAvailable is the signal of the script.
	memoryAvailable = "memory.available"
)

// node is a bounded cgroup with an evictd and a runner of its own.
type node struct {
	name   string
	path   string // of the cgroup
	group  *cgroup.Group
	evictd *daemon.Daemon
	runner *runner.Runner

	// What the API showed, and when it first did.
	seen                                *v1.Node
	raised, tainted, cleared, untainted time.Time
}

func newNode(cgroups *cgroup.System, root, dir, name string) (*node, error) {
	n := &node{name: name, path: path.Join(root, name), evictd: daemon.New(dir, name)}
	err := cgroups.Create(n.path, cgroup.Limits{Memory: stats.Known(nodeMemory), PIDs: stats.Known(nodePIDs)})
	if err == nil {
		n.group, err = cgroups.Open(n.path)
	}
	if err == nil {
		// Enables the controllers down to the pods, where that can be refused.
		err = cgroups.Create(n.pods().Path(), cgroup.Limits{})
	}
	if err == nil {
		_, err = n.available()
	}
	return n, err
}

func (n *node) pods() cgroup.Pods { return cgroup.PodsAt(path.Join(n.path, "kubepods")) }

// start starts the node's evictd.
func (n *node) start(program, server string) error {
	return n.evictd.Start(program, "--cgroup-root", n.path, "--server", server, "--eviction-hard", memoryAvailable+"<"+console.Size(threshold))
}

// run makes the node's runner.
func (n *node) run(cgroups *cgroup.System, client kubernetes.Interface, s *script) {
	n.runner = runner.New(runner.Config{Node: n.name, Cgroups: cgroups, Pods: n.pods(), Image: image, Program: []string{s.programs.Pod, "pod"}}, client, s.log)
}

// available is what is left of the node's memory, bytes: the playground's own
// reading, by the kubelet's formula.
func (n *node) available() (int64, error) {
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

// lostAgent is why the agent of the node's evictd has ended; "" where it has not.
func (n *node) lostAgent(ctx context.Context) string {
	document, err := n.evictd.Status(ctx)
	if err != nil || document.API == nil || document.API.Restarts == 0 {
		return ""
	}
	return document.API.Error
}

// forget has the API's state shown again.
func (n *node) forget() {
	n.raised, n.tainted, n.cleared, n.untainted = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

func (n *node) ready() bool {
	return n.seen != nil && slices.ContainsFunc(n.seen.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	}) && !tainted(n.seen, v1.TaintNodeNotReady)
}

func tainted(n *v1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == key && t.Effect == v1.TaintEffectNoSchedule })
}

func pressed(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
	})
}
