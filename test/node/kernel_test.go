package node_test

import (
	"os"
	"strings"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// rule: 8.21
func TestWhatTheKernelKillsIsToldOfItsPod(t *testing.T) {
	t.Parallel()
	needKernelLog(t)
	n := newNode(t, nodeMemory, nodePIDs)
	bursting, bystander := n.start("bursting", podSpec{}), n.start("bystander", podSpec{})
	if err := n.cgroups.Create(bursting.group, cgroup.Limits{Memory: stats.Known(32 * mib)}); err != nil {
		t.Fatal(err)
	}
	d := n.run("--eviction-hard=memory.available<16Mi")
	d.awaitPods(memorySignal, bursting, bystander)
	bursting.tell("leak 0 100")
	k := d.awaitKernelKill()
	if k.Pod != "default/bursting" || k.UID != bursting.UID || k.Limit != "pod" || k.PID != bursting.pid() || k.Memory == "" || k.Processes != 1 {
		t.Errorf("the status tells of %+v", k)
	}
	d.mustCount(`evictd_kernel_oom_kills_total{limit="pod"} 1`)
	const line = `msg="the kernel has killed for want of memory" pod=default/bursting`
	if !strings.Contains(d.Log.String(), line) {
		t.Errorf("the log does not say %s", line)
	}
	if out, _, code := evictctl(t, "status", "--status-address=unix:"+n.socket()); code != 0 || !strings.Contains(out, "killed by the kernel in default/bursting at ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	bursting.mustDie()
	d.mustHaveEvicted()
	mustLive(t, bystander)
}

func needKernelLog(t *testing.T) {
	t.Helper()
	f, err := os.Open("/dev/kmsg")
	if err != nil {
		t.Skip("skipped: the kernel's log cannot be read here:", err)
	}
	f.Close()
}

// awaitKernelKill waits until a kill of the kernel's is told.
func (d *daemon) awaitKernelKill() nodestatus.KernelKill {
	d.t.Helper()
	s := d.await("the kernel's kill to be told", func(s *nodestatus.Status) bool { return len(s.KernelKills) > 0 })
	if s.KernelKills[0].Limit == "unknown" {
		d.t.Skip("skipped: the kernel has not said whom it killed, for it killed ten others within 5 s")
	}
	return s.KernelKills[0]
}
