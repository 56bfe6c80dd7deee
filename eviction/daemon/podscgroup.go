package daemon

import (
	"cmp"
	"path"
	"sync"

	"github.com/evictd/evictd/cgroup"
)

// podsCgroup is the cgroup of all pods. The kubelet creates it when it starts, which can be
// after evictd, and again when its cgroup driver changes: the path is looked up again and
// again. Its methods may be called from any goroutine.
type podsCgroup struct {
	node *node
	name string // configured; "" for kubepods or kubepods.slice

	mu      sync.Mutex
	current cgroup.Pods
	exists  bool
}

// newPodsCgroup looks for the cgroup of a node with cgroups. Until it exists its path is the
// configured one, or kubepods.
func newPodsCgroup(n *node, name string) *podsCgroup {
	g := &podsCgroup{node: n, name: name, current: cgroup.PodsAt(path.Join(n.root, cmp.Or(name, "kubepods")))}
	g.find()
	return g
}

// find looks for the cgroup, and says whether its path has changed and whether it exists.
func (g *podsCgroup) find() (moved, exists bool) {
	found, err := g.node.cgroups.FindPods(g.node.root, g.name)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.exists = err == nil; g.exists {
		moved = found != g.current
		g.current = found
	}
	return moved, g.exists
}

// get returns the cgroup as it was last found.
func (g *podsCgroup) get() cgroup.Pods {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// Path is the path of the cgroup.
func (g *podsCgroup) Path() string { return g.get().Path() }

// missing says whether the cgroup did not exist when it was last looked for.
func (g *podsCgroup) missing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.exists
}

// findPodsCgroup looks for the pods' cgroup, and says whether the pods must be located
// again. It warns once where pods are known and their cgroup is missing: none of them can be
// measured or evicted then.
func (d *Daemon) findPodsCgroup() (moved bool) {
	g := d.tracker.podsGroup
	if g == nil {
		return false
	}
	before := g.missing()
	moved, exists := g.find()
	switch {
	case !exists && !d.podsCgroupWarned && len(d.tracker.pods()) > 0:
		d.podsCgroupWarned = true
		d.log.Warn("no pod can be measured or evicted: the cgroup of the pods does not exist; --pods-cgroup names it", "cgroup", g.Path(), "pods", len(d.tracker.pods()))
	case exists && (moved || before):
		d.podsCgroupWarned = false
		d.log.Info("the cgroup of the pods is found", "cgroup", g.Path())
	}
	return moved
}

// podsWithoutCgroup is how many pods are known while the pods' cgroup does not exist.
func (d *Daemon) podsWithoutCgroup() int {
	if g := d.tracker.podsGroup; g == nil || !g.missing() {
		return 0
	}
	return len(d.tracker.pods())
}
