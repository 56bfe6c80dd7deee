package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// starve gives the class of besteffort pods the weight that the kubelet gives it.
func starve(n *harness.Node) string {
	n.T.Helper()
	class := filepath.Dir(n.Pods().Pod("any", v1.PodQOSBestEffort))
	n.Make(class, cgroup.Limits{CPUShares: stats.Known(2)})
	return weightFile(n, class)
}

// weightFile is the file of a group's share of the processor.
func weightFile(n *harness.Node, group string) string {
	n.T.Helper()
	settings, err := n.Cgroups.CPUBoost(group, filepath.Dir(group))
	require.NoError(n.T, err)
	for _, s := range settings {
		if name := filepath.Base(s.File); name == "cpu.shares" || name == "cpu.weight" {
			return s.File
		}
	}
	n.T.Skip("skipped: no cpu controller here")
	return ""
}

func TestAStarvedVictimGetsTheProcessorUntilItHasExited(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	weight := starve(n)
	before := content(t, weight)
	greedy := n.Start("greedy", sandbox.Spec{})
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	greedy.Do("ignore-term")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), sandbox.HardGrace("100ms"))
	d.AwaitPods(memorySignal, greedy, bystander)
	press(greedy, 32)
	d.AwaitGone(greedy)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	for file, want := range map[string]string{weight: before, weightFile(n, greedy.Group): "1024"} {
		if strings.HasSuffix(file, "cpu.weight") && want == "1024" {
			want = "100"
		}
		if is := content(t, file); is != want {
			t.Errorf("%s is %s after the kill, want %s", file, is, want)
		}
	}
	harness.MustRun(t, bystander)
	d.Stop()
	left, err := os.ReadDir(n.RuntimeDir())
	require.NoError(t, err)
	for _, file := range left {
		if !strings.HasPrefix(file.Name(), "evictions-") { // that of what the journal does not have yet
			t.Errorf("left in the runtime directory: %s", file.Name())
		}
	}
}

func TestWhatAKilledEvictdHadChangedIsPutBackByACommand(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	weight := starve(n)
	before := content(t, weight)
	pods := []*harness.Pod{n.Start("greedy", sandbox.Spec{}), n.Start("another", sandbox.Spec{})}
	for _, p := range pods {
		p.Do("fork 60") // so that dying takes a while
	}
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), sandbox.HardGrace("0s"))
	d.AwaitPods(memorySignal, pods...)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for content(t, weight) == before && pods[0].Runs() {
		}
		d.Kill()
	}()
	press(pods[0], 32)
	<-killed
	interrupted := content(t, weight) != before
	stdout, stderr, code := evictctl(t, "undo", "--runtime-dir="+n.RuntimeDir())
	if code != 0 || interrupted && !strings.Contains(stdout, weight) {
		t.Errorf("exit code %d, interrupted %v: %s%s", code, interrupted, stdout, stderr)
	}
	if is := content(t, weight); is != before {
		t.Errorf("%s is %s, want %s", weight, is, before)
	}
	t.Log("evictd was killed between the change and its undoing:", interrupted)
}
