package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// passCost is what evictd costs over some time.
type passCost struct {
	at        time.Time
	processor time.Duration
	passes    int
	limits    int // events of a pod that reaches its own memory limit
}

func (c passCost) since(before passCost) passCost {
	return passCost{at: time.Time{}.Add(c.at.Sub(before.at)), processor: c.processor - before.processor, passes: c.passes - before.passes, limits: c.limits - before.limits}
}

// TestCostOfPasses judges nothing: each line that begins with | is what evictd costs while memory is
// far from its threshold, with and without a pod that reads files at its own memory limit, and near
// it, in turns.
func TestCostOfPasses(t *testing.T) {
	n := newMachine(t)
	highFile(n) // skips the test on cgroup v1
	file, reads := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "reads")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	if err := os.Truncate(file, 256*harness.MiB); err != nil { // holes are cached like data
		t.Fatal(err)
	}
	limited, near := n.Start("limited", sandbox.Spec{Request: "32Mi"}), n.Start("near", sandbox.Spec{})
	n.Make(limited.Group, cgroup.Limits{Memory: stats.Known(48 * harness.MiB)})
	limit, _ := n.Cgroups.MemoryHighFile(limited.Group)
	d := protect(n, machineHard+"\nhousekeepingInterval: 5s")
	d.AwaitPods(memorySignal, limited, near)
	watched := campaign.Size(30*time.Second, time.Second) // without a question, which costs more than a pass
	look := func() passCost {
		return passCost{time.Now(), processorTime(t, machine.Show(t, "MainPID")), passesBy(d, ""), memoryEvents(t, limit, "max")}
	}
	states := []struct {
		name       string
		begin, end func()
	}{
		{"far from the threshold", func() {}, func() {}},
		{
			"the same, and a pod at its own limit",
			func() {
				limited.Do("shell : >%[1]s; while [ -e %[1]s ]; do cat %[2]s >/dev/null; done", reads, file)
				harness.Await(t, "the pod to reach its limit", func() bool { return memoryEvents(t, limit, "max") > 0 })
			},
			func() { os.Remove(reads) },
		},
		{
			"twice the threshold is not available",
			func() {
				left := n.Memory(n.Group).Available(stats.WorkingSetModel, false).Or(0)
				near.Do("hold %d", left-300*harness.MiB)
			},
			func() { near.Do("hold 0") },
		},
	}
	rounds := campaign.Count(t, "EVICTD_ROUNDS", 3, 1)
	costs := make([][]passCost, len(states))
	for range rounds {
		for i := range states {
			states[i].begin()
			before := look()
			<-time.After(watched)
			costs[i] = append(costs[i], look().since(before))
			states[i].end()
		}
	}
	for i := range states {
		of := func(figure func(c passCost, seconds float64) float64) string {
			var all []float64
			for _, c := range costs[i] {
				all = append(all, figure(c, c.at.Sub(time.Time{}).Seconds()))
			}
			return fmt.Sprintf("%.2f (%.2f to %.2f)", median(all), slices.Min(all), slices.Max(all))
		}
		fmt.Printf("| %s | passes a second %s | %% of a core %s | ms a pass %s | events of the limit a second %s |\n", states[i].name,
			of(func(c passCost, s float64) float64 { return float64(c.passes) / s }),
			of(func(c passCost, s float64) float64 { return 100 * c.processor.Seconds() / s }),
			of(func(c passCost, s float64) float64 { return 1000 * c.processor.Seconds() / float64(c.passes) }),
			of(func(c passCost, s float64) float64 { return float64(c.limits) / s }))
	}
}
