package node_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

const (
	memorySignal = "memory.available"
	memoryTaint  = v1.TaintNodeMemoryPressure
	// nodeMemory and nodePIDs bound most nodes of these tests.
	nodeMemory = 256 * mib
	nodePIDs   = 200
	// longTransition leaves time to see a condition that is short-lived.
	longTransition = "--eviction-pressure-transition-period=5s"
)

// rule: 3.6
// rule: 1.37
func TestLeakerAboveItsRequestDiesAndABiggerPodWithinItsRequestLives(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	guaranteed := n.start("guaranteed", podSpec{request: "48Mi", limit: "48Mi"})
	within := n.start("within", podSpec{request: "128Mi"})
	small := n.start("small", podSpec{priority: 10})
	leaker := n.start("leaker", podSpec{request: "8Mi"})
	guaranteed.do("hold 20")
	within.do("hold 100")
	small.do("hold 4")
	d := n.run("--eviction-hard=memory.available<64Mi", longTransition)
	d.awaitPods(memorySignal, guaranteed, within, small, leaker)
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	mustScore(t, guaranteed, -997)
	mustScore(t, within, 500)
	mustScore(t, small, 1000)
	mustScore(t, leaker, 1000-1000*8/256)

	leaker.tell("leak 200 400")
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, true)
	n.awaitNodeFile(v1.NodeMemoryPressure, memoryTaint, true)
	e := d.awaitEnd(leaker)
	const told = "The node was low on resource: memory. Threshold quantity: 64Mi, available: "
	if !strings.HasPrefix(e.Message, told) || !strings.Contains(e.Message, ". Container c was using ") || !strings.HasSuffix(e.Message, ", request is 8Mi, has larger consumption of memory. ") {
		t.Errorf("message %q", e.Message)
	}
	if e.Signal != memorySignal || e.Reason != "Evicted" || e.Freed == "" {
		t.Errorf("unexpected eviction %+v", e)
	}
	if e.Crossed.After(e.Decided.Time) || e.Decided.After(e.Signalled.Time) || e.Signalled.After(e.Gone.Time) {
		t.Errorf("times out of order: %+v", e)
	}
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	n.awaitNodeFile(v1.NodeMemoryPressure, memoryTaint, false)
	d.mustCount(`kubelet_evictions{eviction_signal="memory.available"} 1`)
	d.mustCount(`evictd_evictions_total{kind="hard",outcome="gone",signal="memory.available"} 1`)
	d.mustHaveEvicted(leaker)
	mustLive(t, guaranteed, within, small)
}

// mustScore waits for the score of a pod's process; one that the kernel may
// refuse to lower can stay as it was.
func mustScore(t *testing.T, p *pod, want int) {
	t.Helper()
	inherited := score(t, os.Getpid())
	await(t, fmt.Sprintf("oom_score_adj of pod %s to be %d", p.Name, want), func() bool {
		is := score(t, p.pid())
		return is == want || want < inherited && is == inherited
	})
}

func score(t *testing.T, pid int) (adj int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err == nil {
		_, err = fmt.Sscan(string(text), &adj)
	}
	if err != nil {
		t.Fatal(err)
	}
	return adj
}

// rule: 5.24
// rule: 5.28
func TestVictimThatIgnoresSigtermIsKilledAfterTheHardGracePeriod(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	stubborn := n.start("stubborn", podSpec{grace: 3600})
	bystander := n.start("bystander", podSpec{request: "64Mi"})
	bystander.do("hold 32")
	stubborn.do("ignore-term")
	stubborn.do("hold 180") // before, for a victim that still grows has less time
	d := n.run("--eviction-hard=memory.available<64Mi", "--hard-eviction-grace-period=300ms")
	e := d.awaitEnd(stubborn)
	if grace := e.Gone.Sub(e.Decided.Time); grace < 300*time.Millisecond {
		t.Errorf("killed %v after the decision, before the grace period had passed", grace)
	}
	mustEndBy(t, stubborn, syscall.SIGKILL)
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.mustHaveEvicted(stubborn)
	mustLive(t, bystander)
}

func mustEndBy(t *testing.T, p *pod, signal syscall.Signal) {
	t.Helper()
	if status := p.state.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != signal {
		t.Errorf("pod %s: %v, want the end by %v", p.Name, p.state, signal)
	}
}

// soft are the flags of a node with a soft threshold far above the hard one.
func soft(grace string) []string {
	return []string{
		"--eviction-hard=memory.available<32Mi", "--eviction-soft=memory.available<128Mi",
		"--eviction-soft-grace-period=memory.available=" + grace, "--eviction-max-pod-grace-period=60",
	}
}

func TestSoftVictimDiesAfterTheThresholdsGraceAndHasItsOwnToEndInOrder(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	orderly := n.start("orderly", podSpec{request: "16Mi", grace: 30})
	bystander := n.start("bystander", podSpec{request: "64Mi"})
	orderly.do("linger 500ms")
	bystander.do("hold 32")
	d := n.run(soft("2s")...)
	d.awaitPods(memorySignal, orderly, bystander)
	orderly.do("hold 120")
	e := d.awaitEnd(orderly)
	if waited := e.Signalled.Sub(e.Crossed.Time); waited < 2*time.Second {
		t.Errorf("told to end %v after the crossing, before the threshold's grace had passed", waited)
	}
	if took := e.Gone.Sub(e.Decided.Time); took < 500*time.Millisecond {
		t.Errorf("gone %v after the decision, before it could have ended in order", took)
	}
	if code := orderly.state.ExitCode(); code != 0 {
		t.Errorf("pod orderly: %v, want exit code 0", orderly.state)
	}
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.mustHaveEvicted(orderly)
	mustLive(t, bystander)
}

func TestSoftThresholdThatRecoversBeforeItsGraceEvictsNobody(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	greedy := n.start("greedy", podSpec{})
	d := n.run(soft("6s")...)
	d.awaitPods(memorySignal, greedy)
	for range 2 { // longer than the grace together, not each
		greedy.do("hold 150")
		raised := d.await("the soft threshold to be met", func(s *nodestatus.Status) bool { return softMet(s) })
		d.await("most of the grace period to pass", func(s *nodestatus.Status) bool {
			return s.Time.Sub(raised.Time.Time) > 3500*time.Millisecond
		})
		greedy.do("hold 0")
		d.await("the soft threshold to be clear", func(s *nodestatus.Status) bool { return !softMet(s) })
	}
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.mustHaveEvicted()
	mustLive(t, greedy)
}

func softMet(s *nodestatus.Status) bool {
	for _, t := range s.Signals[0].Thresholds {
		if t.Kind == "soft" {
			return t.Met
		}
	}
	return false
}

func TestHardThresholdDoesNotWaitForASoftVictim(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	slow := n.start("slow", podSpec{grace: 60})
	fast := n.start("fast", podSpec{request: "8Mi", grace: 60})
	bystander := n.start("bystander", podSpec{request: "64Mi"})
	slow.do("ignore-term")
	slow.do("hold 120")
	bystander.do("hold 16")
	d := n.run(soft("200ms")...)
	d.awaitEviction(slow, decided)
	fast.tell("leak 200 400")
	e := d.awaitEnd(fast)
	if e.Signal != memorySignal || !strings.Contains(e.Message, "Threshold quantity: 32Mi") {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.mustHaveEvicted(slow, fast)
	mustLive(t, slow, bystander) // slow has most of its minute left
}

// rule: M.44
func TestSoftVictimThatGoesOnLeakingDiesAtTheHardThresholdAndNobodyElse(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	leaker := n.start("leaker", podSpec{grace: 60})
	bystander := n.start("bystander", podSpec{grace: 60})
	leaker.do("ignore-term")
	bystander.do("hold 32")
	d := n.run(soft("100ms")...)
	d.awaitPods(memorySignal, leaker, bystander)
	leaker.tell("leak 40 400")
	e := d.awaitEnd(leaker)
	if had := e.Killed.Sub(e.Decided.Time); had > 30*time.Second {
		t.Errorf("killed after %v", had)
	}
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.mustHaveEvicted(leaker)
	mustLive(t, bystander)
}

func TestDryRunTellsWhomItWouldEvictAndKillsNobody(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	greedy := n.start("greedy", podSpec{})
	d := n.run("--eviction-hard=memory.available<64Mi", "--dry-run", "--system-reserved=memory=1Mi", "--pods-cgroup="+podsCgroup)
	d.awaitPods(memorySignal, greedy)
	greedy.do("hold 200")
	await(t, "the log to tell of it", func() bool {
		return strings.Contains(d.Log.String(), `msg="would evict" pod=default/greedy signal=memory.available hard=true`)
	})
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, true)
	d.mustCount(`evictd_evictions_total{kind="hard",outcome="dry-run",signal="memory.available"} 1`)
	d.mustHaveEvicted()
	mustLive(t, greedy)
	if is := score(t, greedy.pid()); is != score(t, os.Getpid()) {
		t.Errorf("oom_score_adj was set to %d", is)
	}
	if limit := n.podsLimit(); limit == stats.Known(nodeMemory-mib) {
		t.Errorf("the pods' cgroup was limited to %v", limit)
	}
}

func TestPressureThatOutlastsARestartIsActedOnAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	greedy := n.start("greedy", podSpec{grace: 60})
	bystander := n.start("bystander", podSpec{request: "64Mi"})
	greedy.do("ignore-term")
	greedy.do("hold 160")
	bystander.do("hold 16")
	first := n.run(soft("200ms")...)
	first.awaitEviction(greedy, decided)
	first.Stop()
	mustLive(t, greedy)
	second := n.run("--eviction-hard=memory.available<128Mi")
	e := second.awaitEnd(greedy)
	if e.Signal != memorySignal {
		t.Errorf("unexpected eviction %+v", e)
	}
	second.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	second.mustHaveEvicted(greedy)
	mustLive(t, bystander)
}

// rule: 1.34
// rule: 2.47
func TestPodsCgroupIsHeldToWhatIsAllocatable(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	p := n.start("one", podSpec{})
	d := n.run("--eviction-hard=memory.available<32Mi", "--system-reserved=memory=40Mi", "--kube-reserved=memory=16Mi", "--pods-cgroup="+podsCgroup)
	d.awaitPods(memorySignal, p)
	await(t, "the limit of the pods' cgroup", func() bool { return n.podsLimit() == stats.Known(200*mib) })
	p.tell("leak 100 190") // the pods come near their limit before the node comes near its own
	e := d.awaitEnd(p)
	if e.Signal != "allocatableMemory.available" {
		t.Errorf("unexpected eviction %+v", e)
	}
}

// podsLimit is the memory limit of the pods' cgroup.
func (n *node) podsLimit() stats.Amount {
	n.t.Helper()
	return n.memory(n.group + "/" + podsCgroup).Limit
}

// memory is that of a cgroup.
func (n *node) memory(group string) (m stats.Memory) {
	n.t.Helper()
	g, err := n.cgroups.Open(group)
	if err == nil {
		defer g.Close()
		err = g.Memory(&m)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return m
}

func TestConfigurationIsLoadedAnewOnSIGHUP(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	greedy := n.start("greedy", podSpec{})
	bystander := n.start("bystander", podSpec{request: "64Mi"})
	greedy.do("hold 140")
	bystander.do("hold 16")
	file := n.dir + "/evictd.yaml"
	configure := func(threshold string) {
		text := "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\nevictionHard: {memory.available: " + threshold + "}\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	configure("32Mi")
	d := n.run("--config=" + file)
	d.awaitPods(memorySignal, greedy, bystander)
	d.mustHaveEvicted()
	configure("128Mi")
	d.Signal(syscall.SIGHUP)
	d.awaitEnd(greedy)
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.mustHaveEvicted(greedy)
	mustLive(t, bystander)
}
