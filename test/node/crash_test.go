package node_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// TestCampaignKillsOfDaemonAndAgent ends either by SIGKILL at a random moment of
// an eviction, and fails where a victim is lost, reported twice, or followed by
// another.
func TestCampaignKillsOfDaemonAndAgent(t *testing.T) {
	campaign.Only(t)
	rounds := campaign.Count(t, "EVICTD_ROUNDS", 50, 4)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	bystander := a.CreatePod(n, "bystander", sandbox.Spec{Request: "64Mi"}, nil)
	needsTmpfs(n)
	run := func() *harness.Evictd { return runWith(n, a, sandbox.Mode("native"), hardMemory) }
	d := run()
	killed := map[string]int{}
	for round := range rounds {
		name := fmt.Sprintf("leaker-%d", round)
		leaker := a.CreatePod(n, name, sandbox.Spec{Request: "8Mi"}, nil)
		d.AwaitPods(memorySignal, leaker, bystander)
		leaker.Send("leak 200Mi 400Mi")
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
		if random.IntN(2) == 0 {
			killed["agent"]++
			d.KillAgent()
		} else {
			killed["daemon"]++
			d.Kill()
			d = run()
		}
		leaker.AwaitEnd()
		if n.OOMKills(leaker.Container()) > 0 { // before evictd was started again
			killed["leaker, by the kernel"]++
			a.Delete(t, name)
			continue
		}
		a.AwaitEvicted(t, name)
		a.AwaitEvent(t, a.Namespace, name, "Evicted")
		d.Await("everything to be reported", reported)
		if events := a.Events(t, a.Namespace, name)["Evicted"]; events != 1 {
			t.Errorf("round %d: %s was reported %d times", round, name, events)
		}
		harness.MustRun(t, bystander)
		if s := a.Pod(t, "bystander").Status; s.Phase == v1.PodFailed {
			t.Errorf("round %d: the bystander is %s, %s", round, s.Reason, s.Message)
		}
		if t.Failed() {
			t.Fatalf("after round %d, log of evictd:\n%s", round, d.Log())
		}
		a.Delete(t, name)
	}
	t.Logf("%d rounds, killed %v", rounds, killed)
}

// TestEvictionThatTheJournalDoesNotHaveIsReported kills evictd after it has ended a pod, when neither
// the API server nor the journal has the eviction: the disk of --state-dir refuses or hangs.
//
// rule: M.84
func TestEvictionThatTheJournalDoesNotHaveIsReported(t *testing.T) {
	refuse := func(t testing.TB, state string) (mend func()) {
		obstacle := filepath.Join(state, "journal.new") // which a journal is written to
		require.NoError(t, os.MkdirAll(filepath.Join(obstacle, "in-the-way"), 0o755))
		return func() { _ = os.RemoveAll(obstacle) }
	}
	for name, c := range map[string]struct {
		spoil  func(t testing.TB, state string) (mend func())
		before bool // evictd starts
	}{"the disk refuses": {refuse, true}, "the disk hangs": {freeze, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			a := kube.New(n)
			state := mountDisk(n)
			leaker := a.CreatePod(n, "leaker", sandbox.Spec{Request: "8Mi"}, nil)
			bystander := a.CreatePod(n, "bystander", sandbox.Spec{Request: "64Mi"}, nil)
			needsTmpfs(n)
			run := func() *harness.Evictd {
				return runWith(n, a, sandbox.Mode("native"), hardMemory, sandbox.StateDir(state))
			}
			mend := func() {}
			if c.before {
				mend = c.spoil(t, state)
			}
			d := run()
			d.AwaitPods(memorySignal, leaker, bystander)
			d.Await("evictd to be connected", reported)
			if !c.before {
				mend = c.spoil(t, state)
			}
			a.Gate.Set(false)
			press(leaker, 32)
			e := d.AwaitEviction(leaker, harness.Gone)
			leaker.AwaitEnd()
			d.Signal(syscall.SIGKILL)
			mend() // a process that hangs in a write ends then
			d.Kill()

			d = run()
			d.AwaitLog("evictions from before the start were not in the journal")
			a.Gate.Set(true)
			if pod := a.AwaitEvicted(t, "leaker"); pod.Status.Message != e.Message {
				t.Errorf("status says %q, evictd said %q", pod.Status.Message, e.Message)
			}
			a.AwaitEvent(t, a.Namespace, "leaker", "Evicted")
			awaitReported(a, d, "leaker")
			d.Kill()

			d = run() // which has nothing to report
			d.AwaitPods(memorySignal, bystander)
			d.Await("everything to be reported", reported)
			if events := a.Events(t, a.Namespace, "leaker")["Evicted"]; events != 1 {
				t.Errorf("%d events, want 1", events)
			}
			harness.MustRun(t, bystander)
		})
	}
}

// needsTmpfs skips a test of what only a runtime directory on a tmpfs keeps.
func needsTmpfs(n *harness.Node) {
	if n.RunDir == "" {
		n.T.Skip("skipped: needs a tmpfs at /dev/shm")
	}
}

// TestWhatEvictdRemembersSurvivesSIGKILL kills it while a grace period of a threshold
// runs, while that of its victim does, and while a transition period does. Each period
// lasts an hour or a day.
func TestWhatEvictdRemembersSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	greedy := n.Start("greedy", sandbox.Spec{Grace: 3600})
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	greedy.Do("ignore-term")
	bystander.Do("hold 16Mi")
	run := func(grace, transition string) *harness.Evictd {
		return n.Evictd(append(soft(grace), transition)...)
	}
	kill := func(d *harness.Evictd) {
		d.AwaitJournal()
		d.Kill()
	}
	d := run("24h", longTransition)
	d.AwaitPods(memorySignal, greedy, bystander)
	greedy.Do("hold 120Mi")
	d.Await("the soft threshold to be met", softMet)
	kill(d)

	d = run("24h", longTransition)
	d.AwaitLog("graces=[memory.available] conditions=[MemoryPressure] victims=0")
	d.Kill()

	d = run("100ms", longTransition)
	d.AwaitEviction(greedy, nil)
	kill(d)

	d = run("100ms", longTransition)
	if e := d.AwaitEviction(greedy, nil); e.Source != "journal" {
		t.Errorf("the eviction is from %q", e.Source)
	}
	harness.MustRun(t, greedy)
	greedy.Send("exit 0")
	d.AwaitGone(greedy)
	kill(d)

	d = run("100ms", longTransition)
	d.AwaitPods(memorySignal, bystander)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, true) // although memory is available
	d.Kill()
	d = run("100ms", noTransition)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted()
	harness.MustRun(t, bystander)
}
