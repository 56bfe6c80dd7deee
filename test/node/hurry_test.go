package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// starve gives the class of besteffort pods the weight that the kubelet gives it.
func (n *node) starve() (weightFile string) {
	n.t.Helper()
	class := filepath.Join(n.group, podsCgroup, "besteffort")
	if err := n.cgroups.Create(class, cgroup.Limits{CPUShares: stats.Known(2)}); err != nil {
		n.t.Fatal(err)
	}
	return n.weight(class)
}

// weight is the file of a group's share of the processor.
func (n *node) weight(group string) string {
	n.t.Helper()
	settings, err := n.cgroups.FullSpeed(group, filepath.Dir(group))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range settings {
		if name := filepath.Base(s.File); name == "cpu.shares" || name == "cpu.weight" {
			return s.File
		}
	}
	n.t.Skip("skipped: no cpu controller here")
	return ""
}

func content(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestAStarvedVictimGetsTheProcessorToDieAndNobodyKeepsIt(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	weight := n.starve()
	before := content(t, weight)
	greedy := n.start("greedy", podSpec{})
	bystander := n.start("bystander", podSpec{request: "64Mi"})
	greedy.do("ignore-term")
	d := n.run("--eviction-hard=memory.available<64Mi", "--hard-eviction-grace-period=100ms")
	d.awaitPods(memorySignal, greedy, bystander)
	raised := make(chan bool, 1)
	go func() { // the pod's group stays when its processes have gone
		own := n.weight(greedy.group)
		for {
			select {
			case <-greedy.ended:
				raised <- false
				return
			default:
				if content(t, own) == "262144" || content(t, own) == "10000" {
					raised <- true
					return
				}
			}
		}
	}()
	greedy.tell("hold 200")
	e := d.awaitEnd(greedy)
	t.Log("the weight was seen to be raised:", <-raised, "after the signal:", e.Gone.Sub(e.Signalled.Time))
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	for file, want := range map[string]string{weight: before, n.weight(greedy.group): "1024"} {
		if strings.HasSuffix(file, "cpu.weight") && want == "1024" {
			want = "100"
		}
		if is := content(t, file); is != want {
			t.Errorf("%s is %s after the kill, want %s", file, is, want)
		}
	}
	mustLive(t, bystander)
	d.Stop()
	if left, _ := os.ReadDir(n.runtime()); len(left) > 0 {
		t.Errorf("left in the runtime directory: %v", left)
	}
}

func TestWhatAKilledEvictdHadChangedIsPutBackByACommand(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	weight := n.starve()
	before := content(t, weight)
	pods := []*pod{n.start("greedy", podSpec{}), n.start("another", podSpec{})}
	for _, p := range pods {
		p.do("fork 60") // so that dying takes a while
	}
	d := n.run("--eviction-hard=memory.available<64Mi", "--hard-eviction-grace-period=0s")
	d.awaitPods(memorySignal, pods...)
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for content(t, weight) == before && pods[0].lives() {
		}
		d.Kill()
	}()
	pods[0].tell("hold 200")
	<-killed
	interrupted := content(t, weight) != before
	stdout, stderr, code := evictctl(t, "undo", "--runtime-dir="+n.runtime())
	if code != 0 || interrupted != strings.Contains(stdout, weight) {
		t.Errorf("exit code %d, interrupted %v: %s%s", code, interrupted, stdout, stderr)
	}
	if is := content(t, weight); is != before {
		t.Errorf("%s is %s, want %s", weight, is, before)
	}
	t.Log("evictd was killed between the change and its undoing:", interrupted)
}
