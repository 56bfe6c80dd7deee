package cycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// full adds a node with two pods, the second of lower priority.
func (w *fixture) full() {
	w.node("a")
	w.set("one", on("a"), prioritized(2))
	w.set("two", on("a"), prioritized(1))
}

func TestAPreemptorIsGatedUntilItsVictimsAreDeleted(t *testing.T) {
	withLoop(t, func(w *fixture) {
		release := make(chan error)
		w.evict = func(_ context.Context, victim string) error {
			if victim == "two" {
				return <-release
			}
			return nil
		}
		w.full()
		w.set("high", prioritized(10), cpu("2"))
		w.after("status of high: Unschedulable nominated to \"a\"",
			"event FailedScheduling of high: 0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, preempting 2 victims",
			"event Preempted of one: Preempted by pod high on node a", "event Preempted of two: Preempted by pod high on node a",
			"evict one for high", "evict two for high")
		w.remove("one", on("a"))
		w.after()
		w.queued("high", "gated")
		release <- nil // the gate remains: the deletion of the other victim is not observed
		w.after()
		w.queued("high", "gated")
		w.remove("two", on("a"))
		w.after("bind high to a", "event Scheduled of high: *")
	})
}

func TestTheLastVictimIsDeletedAfterAllOthers(t *testing.T) {
	withLoop(t, func(w *fixture) {
		release := make(chan error)
		w.evict = func(context.Context, string) error { return <-release }
		w.full()
		w.set("high", prioritized(10), cpu("2"))
		w.after("status of high: *", "event FailedScheduling of high: *", "event Preempted of one: *", "event Preempted of two: *", "evict one for high")
		release <- nil
		w.after("evict two for high")
		release <- nil
		w.after()
	})
}

func TestAPreemptorIsRetriedAfterAFailedDeletion(t *testing.T) {
	withLoop(t, func(w *fixture) {
		failures := 1
		w.evict = func(context.Context, string) error {
			if failures--; failures >= 0 {
				return errors.New("no answer")
			}
			return nil
		}
		w.full()
		w.set("high", prioritized(10))
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *", "event Preempted of two: *", "evict two for high")
		time.Sleep(2 * time.Second) // the backoff
		w.after("status of high: Unschedulable", "event FailedScheduling of high: *", "event Preempted of two: *", "evict two for high")
	})
}

func TestADeletedVictimIsNotSelectedAgainBeforeItsDeletionIsObserved(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.full()
		w.node("b")
		w.set("three", on("b"), prioritized(3), cpu("2"))
		w.set("high", prioritized(10))
		w.after("status of high: *", "event FailedScheduling of high: *", "event Preempted of two: *", "evict two for high")
		w.set("two", on("a"), prioritized(1)) // older than the deletion
		w.after()
		w.Do(func() { w.Queue.Activate(w.now(), "high") })
		w.after()
		w.queued("high", "gated")
		w.set("two", on("a"), prioritized(1), goes(time.Now().Add(30*time.Second)))
		w.after("status of high: Unschedulable", "event FailedScheduling of high: 0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node.")
		w.remove("two", on("a"))
		w.after("bind high to a", "event Scheduled of high: *")
	})
}

func TestAPodOfLowerPriorityLosesItsNomination(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.full()
		w.set("high", prioritized(10), cpu("1"))
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *", "event Preempted of two: *", "evict two for high")
		w.set("high", prioritized(10), cpu("1")) // older than the nomination
		w.after()
		if got := w.promised("high"); got != "a" {
			t.Errorf("high is promised %q", got)
		}
		w.set("high", prioritized(10), cpu("1"), nominatedTo("a"))
		w.set("higher", prioritized(20), cpu("2"))
		w.after("status of higher: Unschedulable nominated to \"a\"", "status of high: nominated to \"\"", "event FailedScheduling of higher: *",
			"event Preempted of one: *", "evict one for higher",
			"event FailedScheduling of high: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu.", "status of high: Unschedulable")
		w.set("high", prioritized(10), cpu("1"), nominatedTo("a")) // older than the nomination
		w.after()
		if got := w.promised("high"); got != "" {
			t.Errorf("high is promised %q", got)
		}
		w.remove("higher", prioritized(20), cpu("2"))
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *") // the node is free again
	})
}

func (w *fixture) promised(pod string) (node string) {
	w.do(func() {
		for p, name := range w.Nominator.All() {
			if p.Object.Name == pod {
				node = name.Value()
			}
		}
	})
	return node
}

func TestAVictimThatIsNotBoundReturnsToTheQueue(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.plugin.permit = func(pod string) (framework.Status, time.Duration) {
			if pod == "waits" {
				return framework.Status{Code: framework.Wait}, time.Minute
			}
			return framework.Status{}, 0
		}
		w.plugin.preBind = func(ctx context.Context, pod string) framework.Status {
			if pod == "prepares" {
				<-ctx.Done()
				return framework.AsStatus(ctx.Err())
			}
			return framework.Status{}
		}
		w.node("a")
		w.set("waits")
		w.set("prepares", func(p *v1.Pod) { withVolume(p) })
		w.after("status of waits: nominated to \"a\"", "status of prepares: nominated to \"a\"")
		w.set("high", prioritized(10), cpu("2"))
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *",
			"event Preempted of waits: Preempted by pod high on node a (in kube-scheduler memory).",
			"event Preempted of prepares: Preempted by pod high on node a (in kube-scheduler memory).",
			"event FailedScheduling of waits: 0/1 nodes are available: 1 preempted.", "status of waits: Unschedulable nominated to \"\"",
			"event FailedScheduling of prepares: preempted", "status of prepares: Unschedulable nominated to \"\"",
			"bind high to a", "event Scheduled of high: *",
			// The first pod's release activates the other.
			"event FailedScheduling of waits: *", "status of waits: Unschedulable",
			"event FailedScheduling of prepares: *", "status of prepares: Unschedulable")
		w.holds("a", "high")
	})
}

// TestPreemptorsOfDifferentVictimsMakeTwoAttemptsEach: the deletion of a victim
// does not activate other preemptors whose victims are unobserved.
func TestPreemptorsOfDifferentVictimsMakeTwoAttemptsEach(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := make(chan error)
		w.evict = func(context.Context, string) error { return <-answer }
		for _, name := range []string{"a", "b"} {
			w.node(name)
			w.set("of "+name, on(name), cpu("2"))
		}
		for _, name := range []string{"first", "second"} {
			w.set(name, prioritized(10), cpu("2"))
		}
		w.after("status of first: *", "event FailedScheduling of first: *", "status of second: *", "event FailedScheduling of second: *",
			"event Preempted of of a: *", "event Preempted of of b: *", "evict of a for *", "evict of b for *")
		at := func(p *v1.Pod) { p.DeletionGracePeriodSeconds = new(int64) }
		for _, name := range []string{"a", "b"} {
			w.set("of "+name, on(name), cpu("2"), goes(time.Now()), at)
			answer <- nil // the informer may be first
		}
		w.remove("of a", on("a"), cpu("2"))
		w.after("bind *", "event Scheduled of *")
		w.remove("of b", on("b"), cpu("2"))
		w.after("bind *", "event Scheduled of *")
	})
}

// TestAnUnobservedDeletionGatesThePreemptorUntilTheNominationExpires: a stalled
// watch does not gate a preemptor for ever.
func TestAnUnobservedDeletionGatesThePreemptorUntilTheNominationExpires(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.full()
		w.set("high", prioritized(10), cpu("2"))
		w.after("status of high: *", "event FailedScheduling of high: *", "event Preempted of one: *", "event Preempted of two: *", "evict one for high", "evict two for high")
		w.node("b")
		w.after()
		time.Sleep(30*time.Second + preempt.TerminationTimeout + time.Millisecond)
		w.after("event NominationExpired of high: *", "status of high: nominated to \"\"", "bind high to b", "event Scheduled of high: *")
	})
}

// TestPreemptorsAreRetriedOnlyWhereAVictimMadeRoom has the course of kube-scheduler's
// end-to-end test of asynchronous preemption: pods of medium priority preempt all pods of
// four nodes, pods of high priority take half of the room, and the victims leave one by
// one. Each departure retries the pods that it can help.
// rule: S3.4
func TestPreemptorsAreRetriedOnlyWhereAVictimMadeRoom(t *testing.T) {
	const nodes, each = 4, 10
	withLoop(t, func(w *fixture) {
		victim := func(n, i int, more ...func(*v1.Pod)) (string, []func(*v1.Pod)) {
			node := fmt.Sprint("node-", n)
			return fmt.Sprint("low-", n, "-", i), append([]func(*v1.Pod){on(node), prioritized(1), graceful(80)}, more...)
		}
		every := func(do func(name string, changes []func(*v1.Pod)), more ...func(*v1.Pod)) {
			for n := range nodes {
				for i := range each {
					do(victim(n, i, more...))
				}
			}
		}
		for n := range nodes {
			w.node(fmt.Sprint("node-", n), func(n *v1.Node) {
				n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(each, resource.DecimalSI), v1.ResourcePods: resource.MustParse("110")}
			})
		}
		every(func(name string, changes []func(*v1.Pod)) { w.set(name, changes...) })
		for i := range nodes * each {
			w.set(fmt.Sprint("medium-", i), prioritized(5))
		}
		synctest.Wait()
		every(func(name string, changes []func(*v1.Pod)) { w.set(name, changes...) }, goes(time.Now().Add(80*time.Second)))
		for i := range nodes * each / 2 {
			w.set(fmt.Sprint("high-", i), prioritized(10))
		}
		synctest.Wait()
		time.Sleep(time.Minute) // all backoffs have ended
		before := w.count("event FailedScheduling")
		every(func(name string, changes []func(*v1.Pod)) {
			w.remove(name, changes...)
			synctest.Wait()
		})
		if binds := w.count("bind "); binds != nodes*each {
			t.Errorf("%d pods are bound, want %d", binds, nodes*each)
		}
		if high := w.count("bind high"); high != nodes*each/2 {
			t.Errorf("%d pods of high priority are bound, want %d", high, nodes*each/2)
		}
		if failed := w.count("event FailedScheduling") - before; failed > 2*nodes*each {
			t.Errorf("%d attempts failed while %d victims left", failed, nodes*each)
		}
	})
}

// count counts the recorded calls with a prefix.
func (w *fixture) count(prefix string) (n int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.calls {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}
