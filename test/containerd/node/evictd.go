package node

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// Evictd is an `evictd run` that protects a node.
type Evictd struct{ *harness.Evictd }

// Evictd protects the node, whose pods it knows from the runtime alone, until the test
// ends. Its thresholds are of memory alone. More arguments win.
func (n *Node) Evictd(more ...string) *Evictd {
	n.t.Helper()
	arguments := sandbox.Run(n.dir, append([]string{
		sandbox.Mode("native"), sandbox.CgroupRoot(n.Group), sandbox.PodsCgroup(n.PodsGroup()), sandbox.CRIEndpoint("unix:" + n.socket()),
		sandbox.StateDir(filepath.Join(n.dir, "evictd")), sandbox.EvictionHard("memory.available<1Mi"),
	}, more...)...)
	return &Evictd{&harness.Evictd{Process: harness.Serve(n.t, sandbox.Socket(n.dir), exec.Command(harness.Program(n.t, "evictd"), arguments...))}}
}

// AwaitPods waits until evictd knows so many pods of the runtime.
func (e *Evictd) AwaitPods(count int) {
	e.T.Helper()
	e.Await(fmt.Sprintf("evictd to know %d pods", count), func(s *nodestatus.Status) bool {
		return s.Runtime != nil && s.Runtime.Connected && len(s.Runtime.Pods) == count
	})
}

// AwaitEviction waits until a pod was evicted and nothing of it is left, and returns the
// eviction.
func (e *Evictd) AwaitEviction(p *Pod) nodestatus.Eviction {
	e.T.Helper()
	return e.Evictd.AwaitEviction(p, harness.Gone)
}
