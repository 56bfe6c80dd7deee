package cycle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

func TestAPodIsBoundAndConfirmedByTheInformer(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		w.set("p")
		w.after("bind p to a", "event Scheduled of p: Successfully assigned default/p to a")
		w.set("p", func(p *v1.Pod) { p.Labels = map[string]string{"old": "news"} }) // older than the binding
		w.after()
		w.queued("p", "nowhere")
		w.set("p", on("a"))
		w.after()
		w.holds("a", "p")
		w.do(func() {
			if len(w.assumed) != 0 {
				t.Error("the pod is still assumed")
			}
		})
	})
}

func TestNothingIsScheduledBeforeLead(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.do(func() { w.leads = false })
		w.node("a")
		w.set("p")
		w.after()
		w.Lead()
		w.after("bind p to a", "event Scheduled of p: *")
	})
}

func TestAPodWhoseBindingFailsIsForgottenAndTriedAgain(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p", cpu("2"))
		w.after("bind p to a")
		w.set("q")
		w.after("status of q: Unschedulable", "event FailedScheduling of q: *")
		answer <- errors.New("no answer")
		w.after("status of p: SchedulerError", `event FailedScheduling of p: running Bind plugin "DefaultBinder": no answer`,
			"bind q to a", "event Scheduled of q: *") // p was forgotten
		w.queued("p", "backoff")
		w.remove("q")
		time.Sleep(3 * time.Second)
		w.after("bind p to a")
		answer <- nil
		w.after("event Scheduled of p: *")
		w.holds("a", "p")
	})
}

func TestAPodDeletedDuringItsBindingCycleIsForgotten(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p", cpu("2"))
		w.set("q")
		w.after("bind p to a", "status of q: Unschedulable", "event FailedScheduling of q: *")
		w.remove("p", cpu("2")) // cancels the binding
		w.after("bind q to a", "event Scheduled of q: *")
		w.holds("a", "q")
		w.queued("p", "nowhere")
		_ = answer
	})
}

func TestAPodBoundToAnotherNodeIsForgotten(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.slow("p")
		w.node("a")
		w.set("p", cpu("2"))
		w.after("bind p to a")
		w.set("q", cpu("2"))
		w.after("status of q: Unschedulable", "event FailedScheduling of q: *")
		w.set("p", cpu("2"), on("elsewhere"))
		w.after("bind q to a", "event Scheduled of q: *")
	})
}

func TestATerminatingPodWhoseBindingFailsIsNotRetried(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p", cpu("2"))
		w.after("bind p to a")
		w.set("q", cpu("2"))
		w.after("status of q: Unschedulable", "event FailedScheduling of q: *")
		w.set("p", cpu("2"), goes(time.Now()))
		w.after()
		answer <- errors.New("pod p is being deleted, cannot be assigned to a host")
		w.after("bind q to a", "event Scheduled of q: *")
		w.queued("p", "nowhere")
		w.holds("a", "q")
		time.Sleep(time.Hour)
		w.after()
	})
}

func TestANodeDeletedDuringABindingCycle(t *testing.T) {
	withLoop(t, func(w *fixture) {
		first, second := w.slow("p"), w.slow("q")
		w.node("a")
		w.set("p")
		w.set("q")
		w.after("bind p to a", "bind q to a")
		w.Do(func() { w.RemoveNode("a") })
		first <- nil
		second <- errors.New("there is no such node")
		w.after("event Scheduled of p: *", "status of q: SchedulerError", `event FailedScheduling of q: running Bind plugin "DefaultBinder": there is no such node`)
		w.set("p", on("a"))
		w.node("b")
		time.Sleep(3 * time.Second)
		w.after("bind q to b")
		second <- nil
		w.after("event Scheduled of q: *")
		w.holds("b", "q")
		w.node("a") // added again with the bound pod
		w.holds("a", "p")
	})
}

func TestAPodThatChangesDuringItsBindingCycleIsUpdated(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p")
		w.after("bind p to a")
		w.set("p", func(p *v1.Pod) { p.Labels = map[string]string{"new": "label"} })
		w.after()
		answer <- errors.New("no answer")
		w.after("status of p: SchedulerError", "event FailedScheduling of p: *")
		w.do(func() {
			if e := w.Queue.Get("p"); e == nil || e.Pod.Object.Labels["new"] != "label" {
				t.Error("the change is lost")
			}
		})
	})
}

func TestAPodThatAnotherClientBoundIsPlaced(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p")
		w.after("bind p to a")
		w.node("b")
		w.set("p", on("b"))
		w.after() // the binding is canceled
		w.holds("a")
		w.holds("b", "p")
		w.queued("p", "nowhere")
		_ = answer
	})
}

func TestABindingWithoutAResponseCountsIfTheInformerReportsIt(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p")
		w.after("bind p to a")
		w.set("p", on("a"))
		synctest.Wait()
		answer <- errors.New("connection lost")
		w.after("event Scheduled of p: *")
		w.holds("a", "p")
	})
}

func TestAFailedBindingThatTheAPIServerStoredCounts(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p")
		w.after("bind p to a")
		answer <- errors.New("connection lost")
		w.after("status of p: SchedulerError", "event FailedScheduling of p: *")
		w.set("p", on("a"))
		w.after()
		w.queued("p", "nowhere")
		w.holds("a", "p")
	})
}

func TestOnlyPodsOfOurProfilesAreScheduled(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		other := func(p *v1.Pod) { p.Spec.SchedulerName = "other" }
		w.set("p", other)
		w.after()
		w.set("p", other, nominatedTo("a"), prioritized(5), cpu("2"))
		w.set("q", prioritized(1)) // the nomination of the other scheduler is kept
		w.after("status of q: Unschedulable", "event FailedScheduling of q: *")
		w.remove("p", other, nominatedTo("a"), cpu("2"))
		time.Sleep(2 * time.Second)
		w.after("bind q to a", "event Scheduled of q: *")
	})
}

func TestATerminatingPodIsNotScheduled(t *testing.T) {
	withLoop(t, func(w *fixture) {
		leaving := func(p *v1.Pod) { p.DeletionTimestamp = new(p.CreationTimestamp) }
		w.set("p", leaving)
		w.set("q")
		w.after("status of q: Unschedulable", "event FailedScheduling of q: no nodes available to schedule pods")
		w.set("q", leaving)
		w.node("a")
		w.after()
		w.queued("q", "nowhere")
	})
}

func TestAClockStep(t *testing.T) {
	var jump time.Duration
	withLoopConfig(t, func(c *LoopConfig) {
		c.Clock = func() time.Time { return time.Now().Add(jump) }
	}, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p")
		w.after("bind p to a")
		w.do(func() { jump = -time.Hour })
		answer <- errors.New("no answer")
		w.after("status of p: SchedulerError", `event FailedScheduling of p: running Bind plugin "DefaultBinder": no answer`)
		w.set("q")
		w.after("bind q to a", "event Scheduled of q: *")
		w.do(func() { jump = time.Hour })
		w.after("bind p to a")
		answer <- nil
		w.after("event Scheduled of p: *")
	})
}

func TestPodsWaitForPermit(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.plugin.permit = func(string) (framework.Status, time.Duration) {
			return framework.Status{Code: framework.Wait}, time.Minute
		}
		w.node("a")
		for _, name := range []string{"allowed", "late"} {
			w.set(name)
		}
		w.after("status of allowed: nominated to \"a\"", "status of late: nominated to \"a\"")
		w.holds("a", "allowed", "late")
		w.Do(func() { w.Allow("allowed", "Holding") })
		w.after("bind allowed to a", "event Scheduled of allowed: *")
		w.do(func() { w.Allow("allowed", "Holding") }) // again: no effect
		time.Sleep(time.Minute)
		w.after("status of late: Unschedulable nominated to \"\"", "event FailedScheduling of late: 0/1 nodes are available: 1 timeout.")
		w.holds("a", "allowed")
	})
}

func TestADeletedPodThatWaitsForPermitIsForgotten(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.plugin.permit = func(pod string) (framework.Status, time.Duration) {
			if pod == "p" {
				return framework.Status{Code: framework.Wait}, time.Minute
			}
			return framework.Status{}, 0
		}
		w.node("a")
		w.set("p", cpu("2"))
		w.set("q")
		w.after("status of p: nominated to \"a\"", "status of q: Unschedulable", "event FailedScheduling of q: *")
		w.remove("p", cpu("2"))
		w.after("bind q to a", "event Scheduled of q: *")
		w.holds("a", "q")
	})
}

func TestShutdownWaitsForBindingCycles(t *testing.T) {
	withLoop(t, func(w *fixture) {
		answer := w.slow("p")
		w.node("a")
		w.set("p")
		w.after("bind p to a")
		w.stop(nil)
		w.set("q")
		synctest.Wait()
		select {
		case <-w.over:
			t.Fatal("the loop has ended")
		default:
		}
		answer <- nil
		w.over <- <-w.over
		w.after("event Scheduled of p: *")
	})
}

func TestShutdownHasATimeout(t *testing.T) {
	for _, c := range []struct {
		cause error
		after time.Duration
	}{{nil, 10 * time.Second}, {ErrLeaseLost, 0}} {
		withLoop(t, func(w *fixture) {
			w.slow("p")
			w.node("a")
			w.set("p")
			w.after("bind p to a")
			begin := time.Now()
			w.stop(c.cause)
			w.over <- <-w.over
			if took := time.Since(begin); took != c.after {
				t.Errorf("%v: the end took %s, want %s", c.cause, took, c.after)
			}
		})
	}
}

func TestMaxBindingsBoundsBindingCycles(t *testing.T) {
	withLoopConfig(t, func(c *LoopConfig) { c.MaxBindings = 2 }, func(w *fixture) {
		w.node("a")
		answers := map[string]chan error{}
		for i := range 3 {
			name := fmt.Sprint("p", i)
			answers[name] = w.slow(name)
			w.set(name, cpu("100m"))
		}
		w.after("bind p0 to a", "bind p1 to a")
		answers["p1"] <- nil
		w.after("event Scheduled of p1: *", "bind p2 to a")
		answers["p0"] <- nil
		answers["p2"] <- nil
		w.after("event Scheduled of p0: *", "event Scheduled of p2: *")
	})
}

// withVolume adds a claim to a pod, so that its binding cycle is not quick.
func withVolume(p *v1.Pod) {
	p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
}

func TestPodsThatWaitForVolumesDoNotDelayOthers(t *testing.T) {
	withLoopConfig(t, func(c *LoopConfig) { c.MaxBindings = 1 }, func(w *fixture) {
		w.plugin.preBind = func(ctx context.Context, pod string) framework.Status {
			if pod != "p" {
				return framework.Status{}
			}
			<-ctx.Done()
			return framework.AsStatus(ctx.Err())
		}
		w.node("a")
		w.set("p", withVolume)
		w.set("q")
		w.after("status of p: nominated to \"a\"", "bind q to a", "event Scheduled of q: *")
		w.remove("p", withVolume)
		w.after()
		w.holds("a", "q")
	})
}
