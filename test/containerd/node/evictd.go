package node

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/evictd/evictd/internal/runtest"
	"github.com/evictd/evictd/nodestatus"
)

// Evictd is an `evictd run` that protects a node.
type Evictd struct {
	*runtest.Program
	n *Node
}

// Evictd protects the node, whose pods it knows from the runtime alone, until the
// test ends; the disks of the host have no say. More arguments win.
func (n *Node) Evictd(more ...string) *Evictd {
	n.t.Helper()
	socket := filepath.Join(n.dir, "status.sock")
	return &Evictd{runtest.Start(n.t, socket, exec.Command(program("evictd"), append([]string{
		"run", "--node-name=n1", "--mode=native", "--force", "--cgroup-root=" + n.Group, "--cri-endpoint=unix:" + n.socket(),
		"--nodefs=" + n.dir, "--state-dir=" + filepath.Join(n.dir, "evictd"), "--runtime-dir=" + filepath.Join(n.dir, "undo"), "--status-address=unix:" + socket,
		"--housekeeping-interval=100ms", "--eviction-pressure-transition-period=1s",
		"--eviction-hard=memory.available<1Mi",
	}, more...)...)), n}
}

// Status is the status document now.
func (e *Evictd) Status() *nodestatus.Status {
	e.n.t.Helper()
	body, err := e.Get("/v1/status")
	var status nodestatus.Status
	if err == nil {
		err = json.Unmarshal(body, &status)
	}
	if err != nil {
		e.n.t.Fatal(err)
	}
	return &status
}

// Metrics is the page of metrics now.
func (e *Evictd) Metrics() string {
	e.n.t.Helper()
	body, err := e.Get("/metrics")
	if err != nil {
		e.n.t.Fatal(err)
	}
	return string(body)
}

// AwaitPods waits until evictd knows so many pods of the runtime.
func (e *Evictd) AwaitPods(count int) {
	e.n.t.Helper()
	Await(e.n.t, fmt.Sprintf("evictd to know %d pods", count), func() bool {
		runtime := e.Status().Runtime
		return runtime != nil && runtime.Connected && len(runtime.Pods) == count
	})
}

// AwaitEviction waits until a pod was evicted and nothing of it is left, and
// returns what evictd says of that.
func (e *Evictd) AwaitEviction(p *Pod) (eviction nodestatus.Eviction) {
	e.n.t.Helper()
	Await(e.n.t, "the eviction of pod "+p.Name, func() bool {
		for _, eviction = range e.Status().Evictions {
			if eviction.UID == p.UID && !eviction.Gone.IsZero() {
				return true
			}
		}
		return false
	})
	return eviction
}

// Pids are the process ids of evictd and of its agent.
func (e *Evictd) Pids() (evictd, agent int) {
	e.n.t.Helper()
	evictd = e.Pid()
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", evictd))
	for _, file := range children {
		text, _ := os.ReadFile(file)
		if _, err := fmt.Sscan(string(text), &agent); err == nil {
			return evictd, agent
		}
	}
	e.n.t.Fatal("evictd has no agent")
	return 0, 0
}
