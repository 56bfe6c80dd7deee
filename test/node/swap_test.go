package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// TestMachineEvictsForSwap has a pod that its own memory limit drives into swap, and one that uses
// more memory and none of it.
//
// rule: M.108
// rule: M.109
func TestMachineEvictsForSwap(t *testing.T) {
	n := newMachine(t)
	withSwap(t, filepath.Join(n.Dir, "swap"), 256<<20)
	resident := n.Start("resident", sandbox.Spec{})
	swapped := n.Start("swapped", sandbox.Spec{Request: "32Mi"})
	swapped.Do("hold 0") // its cgroup exists
	limited := n.Open(swapped.Group)
	require.NoError(t, limited.SetMemoryLimit(stats.Known(64<<20)))
	resident.Do("hold 128Mi")
	swap := eviction.SwapAvailable.String()
	d := protect(n, "evictionHard: {swap.available: 128Mi}\nevictionPressureTransitionPeriod: 10s")
	d.AwaitPods(swap, resident, swapped)
	swapped.Send("hold 256Mi")
	if e := d.AwaitGone(swapped); e.Signal != swap {
		t.Errorf("evicted for %s", e.Signal)
	}
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted(swapped)
	harness.MustRun(t, resident)
}

// withSwap gives the machine a swap file for the time of the test.
func withSwap(t *testing.T, file string, size int) {
	t.Helper()
	run := func(program string) {
		t.Helper()
		if out, err := exec.Command("/sbin/"+program, file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", program, err, out)
		}
	}
	for _, program := range []string{"mkswap", "swapon", "swapoff"} {
		if _, err := os.Stat("/sbin/" + program); err != nil {
			t.Skip("skipped: needs", err)
		}
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { os.Remove(file) })
	for range size / harness.MiB { // a file with holes is refused
		_, err := f.Write(make([]byte, harness.MiB))
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	run("mkswap")
	run("swapon")
	t.Cleanup(func() { run("swapoff") })
}
