package daemon

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evictd/evictd/cgroup"
)

// podsCgroup is the cgroup of all pods. The kubelet creates it when it starts, which can be
// after evictd, and again when its cgroup driver changes: the path is looked up again and
// again. Its methods may be called from any goroutine.
type podsCgroup struct {
	node *node
	name string // configured names, separated by commas; "" for cgroup.DefaultPods

	mu      sync.Mutex
	current cgroup.Pods
	exists  bool
}

// newPodsCgroup looks for the cgroup of a node with cgroups. Until it exists its path is the
// first of the names.
func newPodsCgroup(n *node, name string) *podsCgroup {
	first, _, _ := strings.Cut(cmp.Or(name, cgroup.DefaultPods), ",")
	g := &podsCgroup{node: n, name: name, current: cgroup.PodsAt(path.Join(n.root, first))}
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

// patience is how long the cgroups of the pods may be missing below the cgroup of all pods before that is logged: a pod
// is known before it runs.
const patience = 30 * time.Second

// findPodsCgroup looks for the pods' cgroup, and says whether the pods must be located
// again. It warns once if pods are known and none can be measured or evicted.
func (d *Daemon) findPodsCgroup() (moved bool) {
	g := d.tracker.podsGroup
	if g == nil {
		return false
	}
	before := g.missing()
	moved, exists := g.find()
	if exists && (moved || before) {
		d.log.Info("the cgroup of the pods is found", "cgroup", g.Path())
	}
	why := d.unprotected()
	switch {
	case why == "":
		d.unprotectedSince, d.unprotectedWarned = time.Time{}, false
	case d.unprotectedSince.IsZero():
		d.unprotectedSince = time.Now()
	}
	if why != "" && !d.unprotectedWarned && (!exists || time.Since(d.unprotectedSince) > patience) {
		d.unprotectedWarned = true
		d.log.Warn(why)
	}
	return moved
}

// podsWithoutCgroup is how many pods are known while none of them has a cgroup or session that evictd finds: the cgroup of
// all pods does not exist, or a kubelet keeps its pods elsewhere.
func (d *Daemon) podsWithoutCgroup() int {
	g := d.tracker.podsGroup
	if g == nil {
		return 0
	}
	all := d.tracker.pods()
	if !g.missing() && slices.ContainsFunc(all, (*trackedPod).exists) {
		return 0
	}
	return len(all)
}

// exists reports whether the pod has a session, or a cgroup that exists.
func (p *trackedPod) exists() bool {
	if p.group == nil {
		return p.session != nil
	}
	return p.group.use(func(*cgroup.Group) error { return nil }) == nil
}

// unprotected is the reason why no pod can be evicted. It is "" if evictd can evict one, or knows none.
func (d *Daemon) unprotected() string {
	pods := d.podsWithoutCgroup()
	if pods == 0 {
		return ""
	}
	g := d.tracker.podsGroup
	why := "the cgroup of the pods does not exist"
	if !g.missing() {
		why = "none of them has a cgroup there"
	}
	return fmt.Sprintf("no pod can be measured or evicted: %d pods are known, and %s: %s; podsCgroup (--pods-cgroup) names it, below the kubelet's cgroupRoot", pods, why, g.Path())
}
