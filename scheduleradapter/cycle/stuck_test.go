package cycle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// stuck makes the attempt of a pod wait until it is released.
func (w *fixture) stuck(pod string) (release func()) {
	held := make(chan struct{})
	w.plugin.permit = func(name string) (framework.Status, time.Duration) {
		if name == pod {
			<-held
		}
		return framework.Status{}, 0
	}
	return func() { close(held) }
}

// rule: S8.22
func TestALoopThatAPluginBlocksIsNotAlive(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		release := w.stuck("p")
		time.Sleep(time.Hour) // without work
		if !w.Alive() {
			t.Error("a loop that waits for work is not alive")
		}
		w.set("p")
		time.Sleep(StepTimeout - time.Second)
		if !w.Alive() {
			t.Error("a loop is not alive before the timeout")
		}
		time.Sleep(2 * time.Second)
		if w.Alive() {
			t.Error("a loop that is blocked is alive")
		}
		release()
		synctest.Wait()
		if !w.Alive() {
			t.Error("a loop is not alive after the attempt")
		}
		w.after("bind p to a", "event Scheduled of p: *")
	})
}

// TestALostLeaseEndsBindingsDuringAnAttempt: the loop does not notice the end of its
// context while an attempt runs.
// rule: S8.21
func TestALostLeaseEndsBindingsDuringAnAttempt(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		release := w.stuck("next")
		w.slow("running")
		w.set("running")
		synctest.Wait()
		w.set("next")
		synctest.Wait()
		if n := w.Bindings(); n != 1 {
			t.Fatalf("%d bindings run", n)
		}
		w.stop(ErrLeaseLost)
		synctest.Wait()
		w.mu.Lock()
		binding := w.binds["running"]
		w.mu.Unlock()
		select {
		case binding <- nil:
			t.Error("the binding continues without the Lease")
		default:
		}
		release()
		w.over <- <-w.over
		w.after("bind running to a") // and no binding of the pod whose attempt ended later
	})
}

// rule: S8.20
func TestAnAttemptHasAContextThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work, stop := context.WithCancel(t.Context())
		c := framework.Cycle{Work: work, Pod: nodetable.NewPod(&v1.Pod{})}
		begin := time.Now()
		<-c.Context().Done()
		if took := time.Since(begin); took != framework.AttemptTimeout {
			t.Errorf("the context ended after %v", took)
		}
		c = framework.Cycle{Work: work, Pod: nodetable.NewPod(&v1.Pod{})}
		attempt := c.Context()
		stop()
		<-attempt.Done()
	})
}
