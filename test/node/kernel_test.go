package node_test

import (
	"os"
	"strings"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// rule: 8.21
func TestWhatTheKernelKillsIsReportedWithItsPod(t *testing.T) {
	t.Parallel()
	needKernelLog(t)
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	bursting, bystander := n.Start("bursting", sandbox.Spec{}), n.Start("bystander", sandbox.Spec{})
	n.Make(bursting.Group, cgroup.Limits{Memory: stats.Known(32 * harness.MiB)})
	d := n.Evictd(sandbox.EvictionHard("memory.available<16Mi"))
	d.AwaitPods(memorySignal, bursting, bystander)
	bursting.Send("leak 0 100Mi")
	k := awaitKernelKill(d)
	if k.Pod != "default/bursting" || k.UID != bursting.UID || k.Limit != "pod" || k.PID != bursting.PID() || k.Memory == "" || k.Processes != 1 {
		t.Errorf("the status has %+v", k)
	}
	d.AwaitMetric(`evictd_kernel_oom_kills_total{limit="pod"} 1`)
	d.AwaitLog(`msg="the kernel's OOM killer has killed" pod=default/bursting`)
	if out, _, code := evictctl(t, "status", "--status-address=unix:"+n.Socket()); code != 0 || !strings.Contains(out, "killed by the kernel in default/bursting at ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	bursting.AwaitEnd()
	d.MustHaveEvicted()
	harness.MustRun(t, bystander)
}

func needKernelLog(t *testing.T) {
	t.Helper()
	f, err := os.Open("/dev/kmsg")
	if err != nil {
		t.Skip("skipped: the kernel's log cannot be read here:", err)
	}
	f.Close()
}

// awaitKernelKill waits until a kill of the kernel's is reported.
func awaitKernelKill(d *harness.Evictd) nodestatus.KernelKill {
	d.T.Helper()
	s := d.Await("the kernel's kill to be reported", func(s *nodestatus.Status) bool { return len(s.KernelKills) > 0 })
	if s.KernelKills[0].Limit == "unknown" {
		d.T.Skip("skipped: the kernel has not said whom it killed, for it killed ten others within 5 s")
	}
	return s.KernelKills[0]
}
