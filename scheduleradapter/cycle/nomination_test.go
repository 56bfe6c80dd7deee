package cycle

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func graceful(seconds int64) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func elsewhere(p *v1.Pod) { p.Spec.SchedulerName = "another" }

// goes makes a pod a terminating victim with a deadline.
func goes(by time.Time) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.DeletionTimestamp = &metav1.Time{Time: by}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler}}
	}
}

func TestANominationWhoseVictimDoesNotTerminateExpiresAndAnotherNodeIsNominated(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		w.set("stays", on("a"), cpu("2"), prioritized(1), graceful(40))
		w.node("b")
		w.set("two", on("b"), cpu("2"), prioritized(2))
		w.set("high", prioritized(10))
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *", "event Preempted of stays: *", "evict stays for high")
		w.set("stays", on("a"), cpu("2"), prioritized(1), goes(time.Now().Add(40*time.Second)))
		w.set("high", prioritized(10), nominatedTo("a"))
		time.Sleep(100*time.Second - time.Millisecond)
		w.after()
		time.Sleep(2 * time.Millisecond)
		w.after("event NominationExpired of high: Victim default/stays on node a did not terminate by *",
			"status of high: Unschedulable nominated to \"b\"",
			"event FailedScheduling of high: 0/2 nodes are available: 2 Insufficient cpu. preemption: found a potential placement for pod on node b, preempting 1 victims",
			"event Preempted of two: *", "evict two for high")
		w.set("two", on("b"), cpu("2"), prioritized(2), goes(time.Now().Add(30*time.Second)))
		w.remove("stays", on("a"), cpu("2")) // after the deadline
		w.after("bind high to a", "event Scheduled of high: *")
	})
}

// TestTheWallClockOfVictimsMayBeSet: the deadlines of nominations do not depend on
// a step of the wall clock.
func TestTheWallClockOfVictimsMayBeSet(t *testing.T) {
	var ahead time.Duration
	withLoopConfig(t, func(c *LoopConfig) { c.Wall = func() time.Time { return time.Now().Add(ahead) } }, func(w *fixture) {
		w.node("a")
		w.set("stays", on("a"), cpu("2"), prioritized(1), graceful(40))
		w.do(func() { ahead = 24 * time.Hour })
		w.set("high", prioritized(10))
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *", "event Preempted of stays: *", "evict stays for high")
		w.set("stays", on("a"), cpu("2"), prioritized(1), goes(time.Now().Add(ahead+40*time.Second)))
		time.Sleep(100*time.Second - time.Millisecond)
		w.after()
		time.Sleep(2 * time.Millisecond)
		w.after("event NominationExpired of high: *", "status of high: Unschedulable nominated to \"\"",
			"event FailedScheduling of high: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 node(s) had a terminating pod that does not go.")
	})
}

func TestANominationOfAnotherProcessExpiresAfterTheDeadlineOfItsVictims(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		w.set("stays", on("a"), cpu("2"), prioritized(1), goes(time.Now().Add(5*time.Minute)))
		w.set("high", prioritized(10), nominatedTo("a"))
		w.after("status of high: Unschedulable", "event FailedScheduling of high: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node.")
		time.Sleep(6*time.Minute - time.Millisecond)
		w.mu.Lock()
		w.calls = nil // retried after five minutes
		w.mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		w.after("event NominationExpired of high: *", "status of high: Unschedulable nominated to \"\"",
			"event FailedScheduling of high: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 node(s) had a terminating pod that does not go.")
	})
}

func TestANominationWhoseVictimsAreDeletedDoesNotExpire(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.full()
		w.set("high", prioritized(10), cpu("2"))
		w.after("status of high: *", "event FailedScheduling of high: *", "event Preempted of one: *", "event Preempted of two: *", "evict one for high", "evict two for high")
		w.remove("two", on("a"))
		w.remove("one", on("a"))
		w.after("bind high to a", "event Scheduled of high: *")
		time.Sleep(2 * time.Minute)
		w.after()
	})
}

func TestTheNominationOfAnotherSchedulerIsKept(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		w.set("theirs", elsewhere, prioritized(5), cpu("2"), nominatedTo("a"))
		w.set("less", prioritized(4))
		w.after("status of less: Unschedulable", "event FailedScheduling of less: 0/1 nodes are available: 1 Insufficient cpu.*")
		w.set("more", prioritized(6))
		w.after("bind more to a", "event Scheduled of more: *")
		w.set("more", prioritized(6), on("a"))
		w.set("theirs", elsewhere, prioritized(5), cpu("2"))
		w.after("bind less to a", "event Scheduled of less: *")
	})
}

// TestAPreemptorWithoutVictimsIsRetriedOnlyAfterAnEventThatMayHelp: a failed
// preemption is not repeated.
func TestAPreemptorWithoutVictimsIsRetriedOnlyAfterAnEventThatMayHelp(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		w.set("equal", on("a"), prioritized(10), cpu("2"))
		w.set("high", prioritized(10))
		w.after("status of high: Unschedulable", "event FailedScheduling of high: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")
		w.node("a", func(n *v1.Node) { n.Labels = map[string]string{"new": "label"} })
		w.node("small", func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("500m") })
		w.set("another", elsewhere, prioritized(20))
		w.set("equal", on("a"), prioritized(10), cpu("2"), func(p *v1.Pod) { p.Labels = map[string]string{"new": "label"} })
		time.Sleep(5 * time.Minute)
		w.after()
		w.remove("equal", on("a"), prioritized(10), cpu("2"))
		w.after("bind high to a", "event Scheduled of high: *")
	})
}

// rule: S2.24
func TestAPreemptorInALoopPausesOnTheNode(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		high := []func(*v1.Pod){prioritized(10), cpu("2")}
		// round fills the node by another scheduler after a preemption.
		round := func(n int) {
			filler := fmt.Sprint("filler-", n)
			was := w.pod(fmt.Sprint("filler-", n-1), on("a"), cpu("2"))
			now := w.pod(filler, elsewhere, on("a"), cpu("2"))
			w.Do(func() { w.SetPod(now); w.RemovePod(was) })
		}
		w.set("filler-0", elsewhere, on("a"), cpu("2"))
		w.set("high", high...)
		preempts := func(n int, more ...string) {
			t.Helper()
			w.after(append(more, "status of high: Unschedulable*", "event FailedScheduling of high: 0/1 nodes are available: 1 Insufficient cpu. preemption: found*",
				fmt.Sprintf("event Preempted of filler-%d: *", n), fmt.Sprintf("evict filler-%d for high", n))...)
		}
		preempts(0)
		round(1)
		preempts(1)
		round(2)
		preempts(2, "event PreemptionLoop of high: Preempted 3 times on node a, and other pods used the resources; preemption on this node pauses for 1m0s")
		round(3)
		w.after("status of high: Unschedulable nominated to \"\"",
			"event FailedScheduling of high: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 node(s) filled up again after earlier preemptions.")
		time.Sleep(time.Minute + time.Millisecond)
		preempts(3, "event PreemptionLoop of high: Preempted 4 times on node a, and other pods used the resources; preemption on this node pauses for 2m0s")
		round(4)
		w.after("status of high: Unschedulable nominated to \"\"", "event FailedScheduling of high: *")
		w.remove("filler-4", on("a"), cpu("2")) // the pod fits
		w.after("bind high to a", "event Scheduled of high: *")
		w.do(func() {
			if r := &w.preemptionLoops; len(r.preemptions)+len(r.pauses) > 0 {
				t.Errorf("%d rounds, %d pauses are remembered", len(r.preemptions), len(r.pauses))
			}
		})
	})
}

func TestSeveralPreemptorsOfAControllerAreNoLoop(t *testing.T) {
	owned := func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{UID: "set", Controller: new(true)}}
	}
	withLoop(t, func(w *fixture) {
		for i := range 4 {
			w.node(fmt.Sprint("node-", i))
		}
		w.node("a", func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("10") })
		for i := range 4 {
			w.set(fmt.Sprint("equal-", i), on(fmt.Sprint("node-", i)), prioritized(10), cpu("2"))
			w.set(fmt.Sprint("low-", i), on("a"), cpu("2500m"))
		}
		for i := range 4 {
			w.set(fmt.Sprint("high-", i), owned, prioritized(10), cpu("2500m"))
		}
		synctest.Wait()
		w.do(func() {
			if loops := len(w.preemptionLoops.pauses); loops > 0 || len(w.preemptionLoops.preemptions["set"]) != 4 {
				t.Errorf("%d loops, %d rounds", loops, len(w.preemptionLoops.preemptions["set"]))
			}
		})
	})
}

func TestAReplacementOfAPreemptorContinuesItsLoop(t *testing.T) {
	pod := func(w *fixture, name string) *Attempt {
		return &Attempt{Pod: w.pod(name, func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{UID: "set", Controller: new(true)}}
		}), Nominated: "a", Victims: []*nodetable.Pod{w.pod("victim of " + name)}}
	}
	withLoop(t, func(w *fixture) {
		w.do(func() {
			for i := range maxPreemptions {
				w.recordPreemption(w.now(), pod(w, fmt.Sprint("replica-", i)))
			}
		})
		w.after("event PreemptionLoop of replica-2: *")
		w.do(func() {
			if got := w.preemptionLoops.pausedNodes(pod(w, "replica-3").Pod); len(got) != 1 {
				t.Errorf("paused on %d nodes", len(got))
			}
			w.preemptionLoops.sweep(w.now().Add(time.Hour))
			if len(w.preemptionLoops.preemptions) != 0 {
				t.Errorf("remembers %v", w.preemptionLoops.preemptions)
			}
		})
	})
}

func TestAnAssumedPodCountsOnceOnItsNominatedNode(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("high")
		w.full()
		w.set("high", prioritized(10))
		w.after("status of high: *", "event FailedScheduling of high: *", "event Preempted of two: *", "evict two for high")
		w.remove("two", on("a"))
		w.after("bind high to a")
		w.remove("one", on("a"))
		w.set("next", prioritized(5))
		w.after("bind next to a", "event Scheduled of next: *")
		answer <- errors.New("no answer")
		w.after("status of high: SchedulerError", `event FailedScheduling of high: running Bind plugin "DefaultBinder": no answer`)
		if got := w.promised("high"); got != "a" {
			t.Errorf("high is promised %q after its binding failed", got)
		}
	})
}

// TestTheNominationOfAnotherClientIsTakenOver: what informers report is older than the
// scheduler's own patch only until the resourceVersion of that patch.
// rule: S2.27
func TestTheNominationOfAnotherClientIsTakenOver(t *testing.T) {
	version := func(n string) func(*v1.Pod) { return func(p *v1.Pod) { p.ResourceVersion = n } }
	for _, c := range []struct {
		name    string
		written string // resourceVersion of the patch; empty: it failed
		events  []string
		want    string
	}{
		{"an older report", "7", []string{"5 b"}, "a"},
		{"a newer one", "7", []string{"8 b"}, "b"},
		{"a newer one that clears it", "7", []string{"8"}, ""},
		{"the patch failed", "", []string{"5 b"}, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			withLoop(t, func(w *fixture) {
				w.full()
				w.node("b", func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("500m") })
				w.set("high", prioritized(10), cpu("2"), version("4"))
				w.after("status of high: *", "event FailedScheduling of high: *", "event Preempted of one: *", "event Preempted of two: *", "evict one for high", "evict two for high")
				for range 2 { // before and after the patch has ended
					for _, event := range c.events {
						n, node, _ := strings.Cut(event, " ")
						w.set("high", prioritized(10), cpu("2"), version(n), nominatedTo(node))
					}
					synctest.Wait()
					w.mu.Lock()
					written := w.written
					w.mu.Unlock()
					written(c.written)
					synctest.Wait()
				}
				if got := w.promised("high"); got != c.want {
					t.Errorf("high is promised %q, want %q", got, c.want)
				}
			})
		})
	}
}
