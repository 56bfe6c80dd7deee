package node_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// boundedInMachine is a node of cgroup v2 in a bounded cgroup of the machine.
func boundedInMachine(t *testing.T) *harness.Node {
	t.Helper()
	machine.Need(t)
	machine.Systemctl(t, "stop", machine.Service)
	n := harness.NewNode(t, 512*harness.MiB, nodePIDs)
	highFile(n) // skips on cgroup v1
	return n
}

// reclaims are flags of a node whose soft threshold is far above the hard one.
func reclaims(t *testing.T, grace, settings string) []string {
	return []string{
		sandbox.EvictionHard("memory.available<64Mi"), sandbox.EvictionSoft("memory.available<224Mi"), sandbox.SoftGrace("memory.available=" + grace),
		sandbox.Config(configFile(t, settings)), noTransition,
	}
}

// stat is a figure of memory.stat of a pod's cgroup.
func stat(p *harness.Pod, key string) string {
	p.Node.T.Helper()
	high, _ := p.Node.Cgroups.MemoryHighFile(p.Group)
	for line := range strings.Lines(content(p.Node.T, filepath.Join(filepath.Dir(high), "memory.stat"))) {
		if value, is := strings.CutPrefix(line, key+" "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestMachineReclaimsPageCacheInPlaceOfAnEviction has a pod read a file so often that workingSet counts it as
// used. A bystander of lower priority is evicted for it when the grace period of the soft threshold ends; with a
// budget for reclaim no pod is, and the page cache of a pod within its request stays.
//
// rule: M.140
// rule: M.144
func TestMachineReclaimsPageCacheInPlaceOfAnEviction(t *testing.T) {
	for name, settings := range map[string]string{"without": "memoryModel: workingSet", "with": "memoryReclaimBudget: 512Mi"} {
		t.Run(name, func(t *testing.T) {
			n := boundedInMachine(t)
			bystander := n.Start("bystander", sandbox.Spec{})
			bystander.Do("hold 48Mi")
			within := n.Start("within", sandbox.Spec{Request: "300Mi", Priority: 10})
			reader := n.Start("reader", sandbox.Spec{Priority: 10})
			within.Do("read %s 3", require.FileOnDisk(t, 48*harness.MiB))
			scanned := stat(within, "pgscan")
			d := n.Evictd(reclaims(t, "20s", settings)...)
			d.AwaitPods(memorySignal, bystander, within, reader)
			reader.Do("read %s 3", require.FileOnDisk(t, 200*harness.MiB))
			if name == "without" {
				if e := d.AwaitGone(bystander); e.Signal != memorySignal {
					t.Errorf("evicted for %s", e.Signal)
				}
				return
			}
			d.AwaitLog("step=reclaim over=true") // the condition may last for less than a look at it
			d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
			d.MustHaveEvicted()
			harness.MustRun(t, bystander, within, reader)
			if now := stat(within, "pgscan"); now != scanned {
				t.Errorf("the kernel has scanned %s pages of a pod within its request, %s before", now, scanned)
			}
			d.Stop()
			reader.Do("read %s", require.FileOnDisk(t, harness.MiB)) // it runs as before
		})
	}
}

// TestMachineEvictsForAHardThresholdWhileMemoryIsReclaimed judges no time: its lines that begin with | have the time
// from the crossing to the first signal, without a reclaim and while one runs.
//
// rule: M.143
func TestMachineEvictsForAHardThresholdWhileMemoryIsReclaimed(t *testing.T) {
	for _, settings := range []string{"memoryModel: workingSet", "memoryReclaimBudget: 512Mi\nmemoryReclaimStep: 4Mi\nmemoryReclaimAttempts: 1000"} {
		n := boundedInMachine(t)
		bystander := n.Start("bystander", sandbox.Spec{Request: "128Mi"})
		bystander.Do("hold 96Mi")
		reader := n.Start("reader", sandbox.Spec{Priority: 10})
		bomb := n.Start("bomb", sandbox.Spec{})
		d := n.Evictd(reclaims(t, "10m", settings)...)
		d.AwaitPods(memorySignal, bystander, reader, bomb)
		reader.Do("read %s 3", require.FileOnDisk(t, 200*harness.MiB))
		if strings.HasPrefix(settings, "memoryReclaim") {
			d.AwaitLog(`step=reclaim over=false of="`)
		}
		bomb.Send("leak 0 400Mi")
		e := d.AwaitGone(bomb)
		d.MustHaveEvicted(bomb)
		harness.MustRun(t, bystander, reader)
		d.Stop()
		n.Clear(n.Pods().Path())
		fmt.Printf("| %s | hard eviction, crossing to first signal | %.1f ms |\n", strings.ReplaceAll(settings, "\n", ", "), e.Signalled.Sub(e.Crossed.Time).Seconds()*1000)
	}
}

// TestMachineAStormThatReadsItsFilesAgainIsEvictedBeforePodsWithinTheirRequests has a pod read a file all the time, so that it
// needs its page cache. Under workingSet a reclaim does not help, and the pod is evicted, though its priority is higher
// than that of a pod within its request. Under reclaimAware no pod is, also not one without a request.
//
// rule: M.141
func TestMachineAStormThatReadsItsFilesAgainIsEvictedBeforePodsWithinTheirRequests(t *testing.T) {
	t.Run("workingSet", func(t *testing.T) {
		n := boundedInMachine(t)
		bystander, reader := n.Start("bystander", sandbox.Spec{Request: "64Mi"}), n.Start("reader", sandbox.Spec{Priority: 10})
		bystander.Do("hold 48Mi")
		d := n.Evictd(reclaims(t, "3s", "memoryModel: workingSet\nmemoryReclaimBudget: 512Mi")...)
		d.AwaitPods(memorySignal, bystander, reader)
		reader.Send("read %s 1000000", written(t, 240*harness.MiB))
		d.AwaitGone(reader)
		d.MustHaveEvicted(reader)
		harness.MustRun(t, bystander)
	})
	t.Run("reclaimAware", func(t *testing.T) {
		n := boundedInMachine(t)
		bystander, reader := n.Start("bystander", sandbox.Spec{}), n.Start("reader", sandbox.Spec{Priority: 10})
		bystander.Do("hold 48Mi")
		d := n.Evictd(reclaims(t, "1s", "memoryModel: reclaimAware")...)
		d.AwaitPods(memorySignal, bystander, reader)
		reader.Do("read %s 6", written(t, 240*harness.MiB))
		d.MustHaveEvicted()
		harness.MustRun(t, bystander, reader)
	})
}
