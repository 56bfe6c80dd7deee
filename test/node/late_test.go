package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// TestPodsCgroupThatAppearsAfterTheStartIsFound has evictd started before the kubelet has
// created the cgroup of the pods, with either cgroup driver.
//
// rule: M.59
func TestPodsCgroupThatAppearsAfterTheStartIsFound(t *testing.T) {
	for _, driver := range []sandbox.Driver{sandbox.Cgroupfs, sandbox.Systemd} {
		t.Run(string(driver), func(t *testing.T) {
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			n.Clear(n.Pods().Path())
			n.Driver = driver
			m := n.Manifest("hog", sandbox.Spec{})
			n.Write(m)
			d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), longTransition)
			d.AwaitLog("the cgroup of the pods does not exist")
			d.AwaitMetric("evictd_pods_without_cgroup 1")
			hog := n.StartIn(m, n.PodGroup(m), nil)
			d.AwaitPods(memorySignal, hog)
			d.AwaitMetric("evictd_pods_without_cgroup 0")
			hog.Send("hold 220Mi")
			d.Await("the eviction", func(s *nodestatus.Status) bool { return len(s.Evictions) == 1 })
			d.AwaitGone(hog)
		})
	}
}

// TestMachineFindsPodsThatStartLater has the installed service started before there is any
// cgroup of pods.
//
// rule: M.59
func TestMachineFindsPodsThatStartLater(t *testing.T) {
	n := newMachine(t)
	n.Clear(n.Pods().Path())
	m := n.Manifest("hog", sandbox.Spec{})
	n.Write(m)
	d := protect(n, machineHard)
	d.AwaitMetric("evictd_pods_without_cgroup 1")
	hog := n.StartIn(m, n.PodGroup(m), nil)
	d.AwaitPods(memorySignal, hog)
	hog.Send("leak 0 768Mi")
	if e := d.AwaitGone(hog); e.Signal != memorySignal {
		t.Errorf("evicted for %s", e.Signal)
	}
}

// TestALimitOfThePodsCgroupThatIsNotOursStays has limits that a kubelet, or an operator, has
// set.
//
// rule: M.60
func TestALimitOfThePodsCgroupThatIsNotOursStays(t *testing.T) {
	for _, c := range []struct {
		mode     string
		is, want int64 // MiB
		log      string
	}{
		{"native", 120, 120, "has a lower memory limit"},
		{"native", 220, 200, "is limited to what is allocatable"},
		{"backstop", 220, 220, "protecting the node"},
		{"backstop", 120, 120, "has a lower memory limit"},
	} {
		t.Run(fmt.Sprintf("%s %d Mi", c.mode, c.is), func(t *testing.T) {
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			require.NoError(t, n.Open(n.Pods().Path()).SetMemoryLimit(stats.Known(c.is*harness.MiB)))
			p := n.Start("pod", sandbox.Spec{})
			d := n.Evictd(sandbox.Mode(c.mode), sandbox.EvictionHard("memory.available<32Mi"), sandbox.SystemReserved("memory=56Mi"), sandbox.PodsCgroup(n.PodsGroup()))
			d.AwaitPods(memorySignal, p)
			d.AwaitLog(c.log)
			if got := podsLimit(n); got != stats.Known(c.want*harness.MiB) {
				t.Errorf("limit %v, want %d Mi", got, c.want)
			}
		})
	}
}

// TestASecondEvictdOfANodeRefusesToStart has another status address, state and manifests for
// the second. Before the first, a process has locked all that every user may open.
//
// rule: M.61
func TestASecondEvictdOfANodeRefusesToStart(t *testing.T) {
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	root, err := os.Open(filepath.Join(n.Cgroups.Mount("memory"), n.Group))
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, unix.Flock(int(root.Fd()), unix.LOCK_EX))
	first := n.Evictd(sandbox.EvictionHard("memory.available<32Mi"))
	dir := harness.Dir(t)
	second := func(more ...string) []string {
		return sandbox.Run(dir, append([]string{sandbox.CgroupRoot(n.Group), sandbox.PodManifests(n.Manifests())}, more...)...)
	}
	_, errs, code := harness.Finish(t, exec.Command(harness.Program(t, "evictd"), second()...))
	if want := fmt.Sprintf("process %d holds the lock", first.PID()); code != 1 || !strings.Contains(errs, want) {
		t.Errorf("exit code %d: %s; want 1 and %q", code, errs, want)
	}
	harness.Serve(t, sandbox.Socket(dir), exec.Command(harness.Program(t, "evictd"), second(sandbox.DryRun)...)).Stop()
	first.Kill()
	harness.Serve(t, sandbox.Socket(dir), exec.Command(harness.Program(t, "evictd"), second()...))
}
