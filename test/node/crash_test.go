package node_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// TestCampaignKillsOfDaemonAndAgent ends either by SIGKILL at a random moment of
// an eviction, and fails where a victim is lost, told twice, or followed by
// another.
func TestCampaignKillsOfDaemonAndAgent(t *testing.T) {
	campaign(t)
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("EVICTD_ROUNDS"), "50"))
	if err != nil {
		t.Fatal("EVICTD_ROUNDS:", err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	bystander := a.CreatePod(n, "bystander", sandbox.Spec{Request: "64Mi"}, nil)
	run := func() *harness.Evictd { return runWith(n, a, sandbox.Mode("native"), hardMemory) }
	d := run()
	killed := map[string]int{}
	for round := range rounds {
		name := fmt.Sprintf("leaker-%d", round)
		leaker := a.CreatePod(n, name, sandbox.Spec{Request: "8Mi"}, nil)
		d.AwaitPods(memorySignal, leaker, bystander)
		leaker.Tell("leak 200Mi 400Mi")
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
		a.AwaitEvicted(t, name)
		a.AwaitEvent(t, a.Namespace, name, "Evicted")
		d.Await("everything to be told", told)
		if told := a.Events(t, a.Namespace, name)["Evicted"]; told != 1 {
			t.Errorf("round %d: %s was told %d times", round, name, told)
		}
		harness.MustRun(t, bystander)
		if s := a.Pod(t, "bystander").Status; s.Phase == v1.PodFailed {
			t.Errorf("round %d: the bystander is %s, %s", round, s.Reason, s.Message)
		}
		if t.Failed() {
			t.Fatalf("after round %d, log of evictd:\n%s", round, d.Log())
		}
		zero := int64(0)
		if err := a.CoreV1().Pods(a.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rounds, killed %v", rounds, killed)
}

func awaitPodEvicted(a *kube.API, t testing.TB, name string) {
	t.Helper()
	harness.Await(t, "the API server to show that "+name+" was evicted", func() bool {
		s := a.Pod(t, name).Status
		return s.Phase == v1.PodFailed && s.Reason == "Evicted"
	})
}

// TestWhatEvictdRemembersSurvivesSIGKILL kills it in the middle of a grace, of a
// victim's own grace, and of a transition period.
func TestWhatEvictdRemembersSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	greedy := n.Start("greedy", sandbox.Spec{Grace: 3})
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	greedy.Do("ignore-term")
	bystander.Do("hold 16Mi")
	const grace, transition = 3 * time.Second, 6 * time.Second
	run := func() *harness.Evictd {
		return n.Evictd(append(soft(grace.String()), sandbox.Transition(transition.String()), sandbox.Housekeeping("1s"))...)
	}
	d := run()
	d.AwaitPods(memorySignal, greedy, bystander)
	again := func(until time.Duration, since time.Time) {
		harness.Await(t, "the moment of the kill", func() bool { return time.Since(since) >= until })
		d.Kill()
		d = run()
	}

	greedy.Do("hold 120Mi")
	met := d.Await("the soft threshold to be met", softMet).Time.Time
	again(grace/2, met)
	e := d.AwaitEviction(greedy, nil)
	if waited := e.Decided.Sub(met); waited < grace-time.Second {
		t.Errorf("decided %v after the crossing, the grace is %v", waited, grace)
	}
	if !strings.Contains(d.Log(), "graces=[memory.available] conditions=[MemoryPressure] victims=0") {
		t.Error("the log does not tell what was taken up")
	}

	again(time.Second, e.Decided.Time)
	gone := d.AwaitGone(greedy)
	if took := gone.Gone.Sub(e.Decided.Time); took < 3*time.Second {
		t.Errorf("gone %v after the decision, with a grace of 3s", took)
	}
	if gone.Source != "journal" {
		t.Errorf("the eviction is from %q", gone.Source)
	}
	greedy.MustHaveEndedBy(syscall.SIGKILL)

	again(transition/2, gone.Gone.Time)
	s := d.Await("the first pass", func(s *nodestatus.Status) bool { return !s.Time.IsZero() })
	if !slices.ContainsFunc(s.Conditions, func(c nodestatus.ConditionStatus) bool {
		return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
	}) {
		t.Errorf("the condition is not held: %+v", s.Conditions)
	}
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	if held := time.Since(gone.Gone.Time); held < transition-time.Second {
		t.Errorf("the condition was held for %v, want %v", held, transition)
	}
	d.MustHaveEvicted()
	harness.MustRun(t, bystander)
}
