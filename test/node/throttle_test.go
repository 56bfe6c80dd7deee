package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// throttling is a node whose evictd throttles, with a pod that grows, and its memory.high.
func throttling(t *testing.T) (n *harness.Node, pod *harness.Pod, high string, run func() *harness.Evictd) {
	t.Helper()
	n = boundedInMachine(t)
	within := n.Start("within", sandbox.Spec{Request: "128Mi"})
	within.Do("hold 64Mi")
	pod = n.Start("grows", sandbox.Spec{Request: "16Mi"})
	pod.Do("hold 32Mi")
	high, _ = n.Cgroups.MemoryHighFile(pod.Group)
	settings := configFile(t, "memoryThrottlePeriod: 5s")
	run = func() *harness.Evictd {
		d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), sandbox.Config(settings), noTransition)
		d.AwaitPods(memorySignal, within, pod)
		return d
	}
	return n, pod, high, run
}

func isMax(t *testing.T, high string) bool {
	return content(t, high) == "max\n" || content(t, high) == "max"
}

// TestMachineThrottlesAPodThatGrows has a pod grow until it is throttled, and stop then: memory.high is put back, and
// no pod is evicted.
//
// rule: M.146
// rule: M.147
func TestMachineThrottlesAPodThatGrows(t *testing.T) {
	_, pod, high, run := throttling(t)
	d := run()
	pod.Send("leak 24Mi 300Mi") // of 512 MiB, less than the threshold allows
	harness.Await(t, "the pod to be throttled", func() bool { return !isMax(t, high) })
	d.AwaitLog("step=throttle over=false")
	harness.Await(t, "memory.high to be put back", func() bool { return isMax(t, high) })
	d.AwaitLog("step=throttle over=true")
	harness.Await(t, "the pod to hold all", func() bool { return pod.Node.Memory(pod.Group).Usage.Or(0) >= 290*harness.MiB })
	d.MustHaveEvicted()
}

// TestMachinePutsMemoryHighOfAPodBack kills evictd while a pod is throttled: `evictd undo`, as the unit runs it, and the
// next evictd put memory.high back.
//
// rule: M.148
func TestMachinePutsMemoryHighOfAPodBack(t *testing.T) {
	for _, by := range []string{"undo", "next", "end"} {
		t.Run(by, func(t *testing.T) {
			n, pod, high, run := throttling(t)
			d := run()
			pod.Send("leak 24Mi 300Mi")
			harness.Await(t, "the pod to be throttled", func() bool { return !isMax(t, high) })
			if by == "end" {
				d.Stop()
			} else if d.Kill(); isMax(t, high) {
				t.Skip("skipped: the throttle had ended when evictd was killed")
			}
			switch by {
			case "undo":
				if out, errs, code := evictctl(t, "undo", "--service-result=signal", "--runtime-dir="+n.RuntimeDir()); code != 0 {
					t.Errorf("exit code %d: %s%s", code, out, errs)
				}
			case "next":
				run().AwaitLog("restored a setting that an earlier evictd had changed")
			}
			if by == "next" { // it may throttle the pod again, which still grows
				harness.Await(t, "memory.high to be put back", func() bool { return isMax(t, high) })
			} else if !isMax(t, high) {
				t.Errorf("memory.high is %s", content(t, high))
			}
		})
	}
}

// TestMachineLeavesAMemoryHighInAPodThatIsNotItsOwn has another program set it of the container, as the kubelet does
// with MemoryQoS.
//
// rule: M.148
func TestMachineLeavesAMemoryHighInAPodThatIsNotItsOwn(t *testing.T) {
	n, pod, high, run := throttling(t)
	of, _ := n.Cgroups.MemoryHighFile(pod.Container())
	if filepath.Dir(of) == filepath.Dir(high) {
		t.Skip("skipped: the pod has no cgroup of a container")
	}
	const others = "419430400"
	require.NoError(t, os.WriteFile(of, []byte(others), 0o644))
	d := run()
	pod.Send("leak 24Mi 300Mi")
	d.AwaitLog("another program has set it")
	if !isMax(t, high) || content(t, of) != others && content(t, of) != others+"\n" {
		t.Errorf("memory.high of the pod is %s, of its container %s", content(t, high), content(t, of))
	}
}
