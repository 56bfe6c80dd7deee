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

	"github.com/evictd/evictd/nodestatus"
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
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	bystander := n.createPod(a, "bystander", podSpec{request: "64Mi"}, nil)
	run := func() *daemon { return n.runWith(a, "--mode=native", hardMemory) }
	d := run()
	killed := map[string]int{}
	for round := range rounds {
		name := fmt.Sprintf("leaker-%d", round)
		leaker := n.createPod(a, name, podSpec{request: "8Mi"}, nil)
		d.awaitPods(memorySignal, leaker, bystander)
		leaker.tell("leak 200 400")
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
		if random.IntN(2) == 0 {
			killed["agent"]++
			d.mustKillAgent()
		} else {
			killed["daemon"]++
			d.Kill()
			d = run()
		}
		leaker.mustDie()
		a.awaitPodEvicted(t, name)
		a.awaitEvent(t, a.namespace, name, "Evicted")
		d.await("everything to be told", func(s *nodestatus.Status) bool { return s.API.Connected && s.API.Untold == 0 })
		if told := a.events(t, a.namespace, name)["Evicted"]; told != 1 {
			t.Errorf("round %d: %s was told %d times", round, name, told)
		}
		mustLive(t, bystander)
		if s := a.pod(t, "bystander").Status; s.Phase == v1.PodFailed {
			t.Errorf("round %d: the bystander is %s, %s", round, s.Reason, s.Message)
		}
		if t.Failed() {
			t.Fatalf("after round %d, log of evictd:\n%s", round, &d.Log)
		}
		zero := int64(0)
		if err := a.CoreV1().Pods(a.namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rounds, killed %v", rounds, killed)
}

func (a *api) awaitPodEvicted(t testing.TB, name string) {
	t.Helper()
	await(t, "the API server to show that "+name+" was evicted", func() bool {
		s := a.pod(t, name).Status
		return s.Phase == v1.PodFailed && s.Reason == "Evicted"
	})
}

// TestWhatEvictdRemembersSurvivesSIGKILL kills it in the middle of a grace, of a
// victim's own grace, and of a transition period.
func TestWhatEvictdRemembersSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	greedy := n.start("greedy", podSpec{grace: 3})
	bystander := n.start("bystander", podSpec{request: "64Mi"})
	greedy.do("ignore-term")
	bystander.do("hold 16")
	const grace, transition = 3 * time.Second, 6 * time.Second
	run := func() *daemon {
		return n.run(append(soft(grace.String()), "--eviction-pressure-transition-period="+transition.String(), "--housekeeping-interval=1s")...)
	}
	d := run()
	d.awaitPods(memorySignal, greedy, bystander)
	again := func(until time.Duration, since time.Time) {
		awaitFor(t, until+patience, "the moment of the kill", func() bool { return time.Since(since) >= until })
		d.Kill()
		d = run()
	}

	greedy.do("hold 120")
	met := d.await("the soft threshold to be met", softMet).Time.Time
	again(grace/2, met)
	e := d.awaitEviction(greedy, decided)
	if waited := e.Decided.Sub(met); waited < grace-time.Second {
		t.Errorf("decided %v after the crossing, the grace is %v", waited, grace)
	}
	if !strings.Contains(d.Log.String(), "graces=[memory.available] conditions=[MemoryPressure] victims=0") {
		t.Error("the log does not tell what was taken up")
	}

	again(time.Second, e.Decided.Time)
	gone := d.awaitEnd(greedy)
	if took := gone.Gone.Sub(e.Decided.Time); took < 3*time.Second {
		t.Errorf("gone %v after the decision, with a grace of 3s", took)
	}
	if gone.Source != "journal" {
		t.Errorf("the eviction is from %q", gone.Source)
	}
	mustEndBy(t, greedy, syscall.SIGKILL)

	again(transition/2, gone.Gone.Time)
	s := d.await("the first pass", func(s *nodestatus.Status) bool { return !s.Time.IsZero() })
	if !slices.ContainsFunc(s.Conditions, func(c nodestatus.ConditionStatus) bool {
		return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
	}) {
		t.Errorf("the condition is not held: %+v", s.Conditions)
	}
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	if held := time.Since(gone.Gone.Time); held < transition-time.Second {
		t.Errorf("the condition was held for %v, want %v", held, transition)
	}
	d.mustHaveEvicted()
	mustLive(t, bystander)
}
