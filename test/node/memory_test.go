package node_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

const (
	memorySignal = "memory.available"
	memoryTaint  = v1.TaintNodeMemoryPressure
	// nodeMemory and nodePIDs bound most nodes of these tests.
	nodeMemory = 256 * harness.MiB
	nodePIDs   = 200
)

var (
	// longTransition keeps a condition raised for as long as a test looks at it, and
	// noTransition clears it, also for an evictd that is started then.
	longTransition = sandbox.Transition("24h")
	noTransition   = sandbox.Transition("100ms")
)

// press has a pod hold more until so many MiB of its node's memory are available.
// However late evictd acts, the node stays below its limit, where the kernel would kill.
func press(p *harness.Pod, left int) {
	p.Node.T.Helper()
	node := p.Node.Memory(p.Node.Group)
	available, known := node.Available(stats.WorkingSetModel, false).Get()
	if !known {
		p.Node.T.Fatalf("memory of %s: %+v", p.Node.Group, node)
	}
	p.Send("grow %d", available-int64(left)*harness.MiB)
}

// rule: 3.6
// rule: 1.37
func TestLeakerAboveItsRequestDiesAndABiggerPodWithinItsRequestLives(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	guaranteed := n.Start("guaranteed", sandbox.Spec{Request: "48Mi", Limit: "48Mi"})
	within := n.Start("within", sandbox.Spec{Request: "128Mi"})
	small := n.Start("small", sandbox.Spec{Priority: 10})
	leaker := n.Start("leaker", sandbox.Spec{Request: "8Mi"})
	guaranteed.Do("hold 20Mi")
	within.Do("hold 100Mi")
	small.Do("hold 4Mi")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), longTransition)
	d.AwaitPods(memorySignal, guaranteed, within, small, leaker)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	mustScore(t, guaranteed, -997)
	mustScore(t, within, 500)
	mustScore(t, small, 1000)
	mustScore(t, leaker, 1000-1000*8/256)

	press(leaker, 32)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, true)
	awaitNodeFile(n, v1.NodeMemoryPressure, memoryTaint, true)
	e := d.AwaitGone(leaker)
	const message = "The node was low on resource: memory. Threshold quantity: 64Mi, available: "
	if !strings.HasPrefix(e.Message, message) || !strings.Contains(e.Message, ". Container c was using ") || !strings.HasSuffix(e.Message, ", request is 8Mi, has larger consumption of memory. ") {
		t.Errorf("message %q", e.Message)
	}
	if e.Signal != memorySignal || e.Reason != "Evicted" || e.Freed == "" {
		t.Errorf("unexpected eviction %+v", e)
	}
	if e.Crossed.After(e.Decided.Time) || e.Decided.After(e.Signalled.Time) || e.Signalled.After(e.Gone.Time) {
		t.Errorf("times out of order: %+v", e)
	}
	d.AwaitMetric(`kubelet_evictions{eviction_signal="memory.available"} 1`)
	d.AwaitMetric(`evictd_evictions_total{kind="hard",outcome="gone",signal="memory.available"} 1`)
	d.MustHaveEvicted(leaker)
	d.Stop()
	again := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), noTransition)
	again.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	awaitNodeFile(n, v1.NodeMemoryPressure, memoryTaint, false)
	again.MustHaveEvicted()
	harness.MustRun(t, guaranteed, within, small)
}

// mustScore waits for the score of a pod's process; one that the kernel may
// refuse to lower can stay as it was. With the systemd driver the cgroup of a container has
// no name that evictd knows without a container runtime: none is scored there.
func mustScore(t *testing.T, p *harness.Pod, want int) {
	t.Helper()
	if p.Node.Driver == sandbox.Systemd {
		return
	}
	inherited := score(t, os.Getpid())
	harness.Await(t, fmt.Sprintf("oom_score_adj of pod %s to be %d", p.Name, want), func() bool {
		is := score(t, p.PID())
		return is == want || want < inherited && is == inherited
	})
}

func score(t *testing.T, pid int) (adj int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err == nil {
		_, err = fmt.Sscan(string(text), &adj)
	}
	require.NoError(t, err)
	return adj
}

// rule: 5.24
// rule: 5.28
func TestVictimThatIgnoresSigtermIsKilledAfterTheHardGracePeriod(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	stubborn := n.Start("stubborn", sandbox.Spec{Grace: 3600})
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	bystander.Do("hold 32Mi")
	stubborn.Do("ignore-term")
	stubborn.Do("hold 180Mi") // before, for a victim that still grows has less time
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), sandbox.HardGrace("300ms"))
	e := d.AwaitGone(stubborn)
	if grace := e.Gone.Sub(e.Decided.Time); grace < 300*time.Millisecond {
		t.Errorf("killed %v after the decision, before the grace period had passed", grace)
	}
	stubborn.MustHaveEndedBy(syscall.SIGKILL)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted(stubborn)
	harness.MustRun(t, bystander)
}

// soft are the flags of a node with a soft threshold far above the hard one.
func soft(grace string) []string {
	return []string{
		sandbox.EvictionHard("memory.available<32Mi"), sandbox.EvictionSoft("memory.available<128Mi"),
		sandbox.SoftGrace("memory.available=" + grace), sandbox.MaxPodGrace("3600"),
	}
}

func TestSoftVictimDiesAfterTheThresholdsGraceAndHasItsOwnToEndInOrder(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	orderly := n.Start("orderly", sandbox.Spec{Request: "16Mi", Grace: 3600})
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	orderly.Do("on TERM exit 0 500ms")
	bystander.Do("hold 32Mi")
	d := n.Evictd(soft("500ms")...)
	d.AwaitPods(memorySignal, orderly, bystander)
	orderly.Send("hold 120Mi") // it may receive SIGTERM before it holds all of that
	e := d.AwaitGone(orderly)
	if waited := e.Signalled.Sub(e.Crossed.Time); waited < 500*time.Millisecond {
		t.Errorf("signalled %v after the crossing, before the threshold's grace had passed", waited)
	}
	if took := e.Gone.Sub(e.Decided.Time); took < 500*time.Millisecond {
		t.Errorf("gone %v after the decision, before it could have ended in order", took)
	}
	if code := orderly.State().ExitCode(); code != 0 {
		t.Errorf("pod orderly: %v, want exit code 0", orderly.State())
	}
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted(orderly)
	harness.MustRun(t, bystander)
}

// TestSoftThresholdActsWhenItsGraceEnds has no second regular housekeeping pass.
//
// rule: M.100
func TestSoftThresholdActsWhenItsGraceEnds(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	greedy := n.Start("greedy", sandbox.Spec{})
	greedy.Do("hold 150Mi")
	d := n.Evictd(append(soft("5s"), sandbox.Housekeeping("24h"))...)
	d.AwaitGone(greedy)
	d.MustHaveEvicted(greedy)
}

func TestSoftThresholdThatRecoversBeforeItsGraceEvictsNoPod(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	greedy := n.Start("greedy", sandbox.Spec{})
	d := n.Evictd(soft("24h")...)
	d.AwaitPods(memorySignal, greedy)
	for range 2 {
		greedy.Do("hold 150Mi")
		d.Await("the soft threshold to be met", softMet)
		greedy.Do("hold 0")
		d.Await("the soft threshold to be clear", func(s *nodestatus.Status) bool { return !softMet(s) })
	}
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted()
	harness.MustRun(t, greedy)
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
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	slow := n.Start("slow", sandbox.Spec{Grace: 3600})
	fast := n.Start("fast", sandbox.Spec{Request: "8Mi", Grace: 3600, Priority: -1}) // before slow, once it is above its request
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	slow.Do("ignore-term")
	slow.Do("hold 120Mi")
	bystander.Do("hold 16Mi")
	d := n.Evictd(soft("200ms")...)
	d.AwaitEviction(slow, nil)
	press(fast, 16)
	e := d.AwaitGone(fast)
	if e.Signal != memorySignal || !strings.Contains(e.Message, "Threshold quantity: 32Mi") {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.MustHaveEvicted(slow, fast)
	harness.MustRun(t, slow, bystander) // slow has most of its hour left
}

// rule: M.44
func TestSoftVictimThatKeepsLeakingIsKilledAtTheHardThresholdInsteadOfOthers(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	leaker := n.Start("leaker", sandbox.Spec{Grace: 3600})
	bystander := n.Start("bystander", sandbox.Spec{Grace: 3600})
	leaker.Do("ignore-term")
	bystander.Do("hold 32Mi")
	d := n.Evictd(soft("100ms")...)
	d.AwaitPods(memorySignal, leaker, bystander)
	press(leaker, 96)
	d.AwaitEviction(leaker, nil)
	harness.MustRun(t, leaker)
	press(leaker, 16)
	d.AwaitGone(leaker) // long before the end of its grace period of an hour
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted(leaker)
	harness.MustRun(t, bystander)
}

func TestDryRunLogsWhichPodItWouldEvictAndKillsNone(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	greedy := n.Start("greedy", sandbox.Spec{})
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), sandbox.DryRun, sandbox.SystemReserved("memory=1Mi"), sandbox.PodsCgroup(n.PodsGroup()))
	d.AwaitPods(memorySignal, greedy)
	greedy.Do("hold 200Mi")
	d.AwaitLog(`msg="would evict" pod=default/greedy signal=memory.available hard=true`)
	harness.Await(t, "evictd explain to say that no pod is killed", func() bool {
		out, errs, code := evictctl(t, "explain", "--status-address=unix:"+n.Socket())
		if code != 0 || strings.Contains(out, "is being killed") {
			t.Errorf("explain: %d, %s\n%s", code, errs, out)
		}
		return strings.Contains(out, "evict default/greedy, which is not killed in a dry run")
	})
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, true)
	d.AwaitMetric(`evictd_evictions_total{kind="hard",outcome="dry-run",signal="memory.available"} 1`)
	d.MustHaveEvicted()
	harness.MustRun(t, greedy)
	if is := score(t, greedy.PID()); is != score(t, os.Getpid()) {
		t.Errorf("oom_score_adj was set to %d", is)
	}
	if limit := podsLimit(n); limit == stats.Known(nodeMemory-harness.MiB) {
		t.Errorf("the pods' cgroup was limited to %v", limit)
	}
}

func TestPressureThatOutlastsARestartIsActedOnAgain(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	greedy := n.Start("greedy", sandbox.Spec{Grace: 3600})
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	greedy.Do("ignore-term")
	greedy.Do("hold 160Mi")
	bystander.Do("hold 16Mi")
	first := n.Evictd(soft("200ms")...)
	first.AwaitEviction(greedy, nil)
	first.Stop()
	harness.MustRun(t, greedy)
	second := n.Evictd(sandbox.EvictionHard("memory.available<128Mi"))
	e := second.AwaitGone(greedy)
	if e.Signal != memorySignal {
		t.Errorf("unexpected eviction %+v", e)
	}
	second.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	second.MustHaveEvicted(greedy)
	harness.MustRun(t, bystander)
}

// rule: 1.34
// rule: 2.47
func TestPodsCgroupIsHeldToWhatIsAllocatable(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	p := n.Start("one", sandbox.Spec{})
	d := n.Evictd(sandbox.EvictionHard("memory.available<32Mi"), sandbox.SystemReserved("memory=40Mi"), sandbox.KubeReserved("memory=16Mi"), sandbox.PodsCgroup(n.PodsGroup()))
	d.AwaitPods(memorySignal, p)
	harness.Await(t, "the limit of the pods' cgroup", func() bool { return podsLimit(n) == stats.Known(200*harness.MiB) })
	p.Send("hold 180Mi") // the pods come near their limit before the node comes near its own
	e := d.AwaitGone(p)
	if e.Signal != "allocatableMemory.available" {
		t.Errorf("unexpected eviction %+v", e)
	}
}

// podsLimit is the memory limit of the pods' cgroup.
func podsLimit(n *harness.Node) stats.Amount {
	n.T.Helper()
	return n.Memory(n.Pods().Path()).Limit
}

func TestConfigurationIsLoadedAgainOnSIGHUP(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	greedy := n.Start("greedy", sandbox.Spec{})
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	greedy.Do("hold 140Mi")
	bystander.Do("hold 16Mi")
	file := n.Dir + "/evictd.yaml"
	configure := func(threshold string) {
		text := "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\nevictionHard: {memory.available: " + threshold + "}\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	configure("32Mi")
	d := n.Evictd(sandbox.Config(file))
	d.AwaitPods(memorySignal, greedy, bystander)
	d.MustHaveEvicted()
	configure("128Mi")
	d.Signal(syscall.SIGHUP)
	d.AwaitGone(greedy)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted(greedy)
	harness.MustRun(t, bystander)
}
