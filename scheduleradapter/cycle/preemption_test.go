package cycle

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// full is a node with two running pods, of which the second matters less.
func (w *world) full() {
	w.node("a")
	w.set("one", on("a"), prioritized(2))
	w.set("two", on("a"), prioritized(1))
}

func TestAPreemptorWaitsUntilItsVictimsHaveBeenTold(t *testing.T) {
	inWorld(t, func(w *world) {
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
		release <- nil // something meanwhile would have had it tried, but the API server has yet to tell of the other
		w.after()
		w.queued("high", "gated")
		w.remove("two", on("a"))
		w.after("bind high to a", "event Scheduled of high: *")
	})
}

func TestTheLastVictimIsToldWhenAllOthersHaveBeen(t *testing.T) {
	inWorld(t, func(w *world) {
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

func TestAPreemptorIsTriedAgainWhereAVictimCannotBeTold(t *testing.T) {
	inWorld(t, func(w *world) {
		failures := 1
		w.evict = func(context.Context, string) error {
			if failures--; failures >= 0 {
				return errors.New("no answer")
			}
			return nil
		}
		w.full()
		w.set("high", prioritized(10))
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *", "event Preempted of two: *", "evict two for high",
			"status of high: Unschedulable", "event FailedScheduling of high: *", "event Preempted of two: *", "evict two for high")
	})
}

func TestAVictimThatWasDeletedIsNotChosenAgainBeforeTheAPIServerTellsOfIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.full()
		w.node("b")
		w.set("three", on("b"), prioritized(3), cpu("2"))
		w.set("high", prioritized(10))
		w.after("status of high: *", "event FailedScheduling of high: *", "event Preempted of two: *", "evict two for high")
		w.set("two", on("a"), prioritized(1)) // from before it was deleted
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

func TestAPodThatMattersLessLosesItsPromise(t *testing.T) {
	inWorld(t, func(w *world) {
		w.full()
		w.set("high", prioritized(10), cpu("2"))
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *", "event Preempted of one: *", "event Preempted of two: *",
			"evict one for high", "evict two for high")
		w.set("high", prioritized(10), cpu("2")) // from before the promise was written: it stands
		w.after()
		if got := w.promised("high"); got != "a" {
			t.Errorf("high is promised %q", got)
		}
		w.set("high", prioritized(10), cpu("2"), nominatedTo("a"))
		w.set("higher", prioritized(20), cpu("2"))
		w.after("status of higher: Unschedulable nominated to \"a\"", "status of high: nominated to \"\"", "event FailedScheduling of higher: *")
		w.set("high", prioritized(10), cpu("2"), nominatedTo("a")) // old news again
		w.after()
		if got := w.promised("high"); got != "" {
			t.Errorf("high is promised %q", got)
		}
		w.remove("higher")
		w.after("status of high: Unschedulable nominated to \"a\"", "event FailedScheduling of high: *") // the room is there again
	})
}

func (w *world) promised(pod string) (node string) {
	w.do(func() {
		for p, name := range w.Nominator.All() {
			if p.Object.Name == pod {
				node = name.Value()
			}
		}
	})
	return node
}

func TestAVictimThatIsNotBoundYetGoesBackIntoTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
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
			// One left the node, so the other is tried, in vain.
			"event FailedScheduling of waits: *", "status of waits: Unschedulable",
			"event FailedScheduling of prepares: *", "status of prepares: Unschedulable")
		w.holds("a", "high")
	})
}

// TestVictimsOfOthersThatGoHaveNoPreemptorTriedWhoseOwnAreNotToldOf holds that as
// many preemptors as there are make as few attempts as they can: two each.
func TestVictimsOfOthersThatGoHaveNoPreemptorTriedWhoseOwnAreNotToldOf(t *testing.T) {
	inWorld(t, func(w *world) {
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
			answer <- nil // the watch may be first
		}
		w.remove("of a", on("a"), cpu("2"))
		w.after("bind *", "event Scheduled of *")
		w.remove("of b", on("b"), cpu("2"))
		w.after("bind *", "event Scheduled of *")
	})
}

// TestAVictimThatNobodyHearsOfHoldsNoLongerThanThePromise holds that a watch that
// has fallen silent does not hold a preemptor back for ever.
func TestAVictimThatNobodyHearsOfHoldsNoLongerThanThePromise(t *testing.T) {
	inWorld(t, func(w *world) {
		w.full()
		w.set("high", prioritized(10), cpu("2"))
		w.after("status of high: *", "event FailedScheduling of high: *", "event Preempted of one: *", "event Preempted of two: *", "evict one for high", "evict two for high")
		w.node("b")
		w.after()
		time.Sleep(30*time.Second + preempt.TerminationTimeout + time.Millisecond)
		w.after("event NominationExpired of high: *", "status of high: nominated to \"\"", "bind high to b", "event Scheduled of high: *")
	})
}
