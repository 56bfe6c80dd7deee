package cycle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// slowFilter asks another program about each pod.
type slowFilter struct {
	*fixture
	asked      []heldRequest // in order
	unreserved []string      // pods that are not retried
}

// withSlowFilter runs a test with PodGroups and a slowFilter.
func withSlowFilter(t *testing.T, test func(*slowFilter)) {
	f := &slowFilter{}
	change := func(cfg *LoopConfig) {
		f.fixture = cfg.API.(*fixture)
		f.late, cfg.PodGroups = f, true
	}
	withLoopConfig(t, change, func(*fixture) { test(f) })
}

type heldRequest struct {
	pod      string
	response chan struct{} // closed by the test
	answered chan struct{}
}

func (r heldRequest) Answered() <-chan struct{} { return r.answered }

func (*slowFilter) Name() string                            { return "Slow" }
func (*slowFilter) FiltersLate()                            {}
func (*slowFilter) Reasons(*nodetable.Pod, uint32) []string { return nil }

func (f *slowFilter) Filter(c *framework.Cycle) framework.Status {
	name := c.Pod.Object.Name
	usable := func(sent framework.Request) bool { return sent.(heldRequest).pod == name }
	err := c.Await(c.Ask(usable, func(ctx context.Context) framework.Request {
		r := heldRequest{name, make(chan struct{}), make(chan struct{})}
		f.asked = append(f.asked, r)
		go func() {
			defer close(r.answered)
			select {
			case <-r.response:
			case <-ctx.Done():
			}
		}()
		return r
	}))
	if err != nil {
		return framework.AsStatus(err)
	}
	return framework.Status{}
}

func (*slowFilter) Reserve(framework.Assignment) framework.Status { return framework.Status{} }

func (f *slowFilter) Unreserve(a framework.Assignment) {
	if !a.Retried {
		f.unreserved = append(f.unreserved, a.Pod.Object.Name)
	}
}

// answer answers the latest request, which is for the pod.
func (f *slowFilter) answer(pod string) {
	f.Helper()
	synctest.Wait()
	var last heldRequest
	f.do(func() { last = f.asked[len(f.asked)-1] })
	if last.pod != pod {
		f.Fatalf("the latest request is for %s, not for %s", last.pod, pod)
	}
	close(last.response)
}

// pods are those that were asked about.
func (f *slowFilter) pods() (names []string) {
	f.do(func() {
		for _, r := range f.asked {
			names = append(names, r.pod)
		}
	})
	return names
}

// The pods of a group are asked about once each, and the loop is free meanwhile.
// rule: S8.47
func TestEventsAreHandledWhileAPodGroupWaits(t *testing.T) {
	withSlowFilter(t, func(w *slowFilter) {
		w.node("a", func(n *v1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("3") })
		w.gang("workers", 2, 10)
		w.set("p", prioritized(10), grouped("workers"))
		w.set("q", prioritized(10), grouped("workers"))
		w.after()
		w.set("other", cpu("0"))
		w.node("b", func(n *v1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("0") })
		w.queued("other", "active")
		w.queued("p", "inflight")
		w.answer("p")
		w.after()
		w.holds("a") // the suspended run leaves no trace
		w.answer("q")
		w.after("bind p to a", "bind q to a", "event Scheduled of p: *", "event Scheduled of q: *", "podgroup workers Scheduled: ")
		w.answer("other")
		w.after("bind other to a", "event Scheduled of other: *")
		if got := w.pods(); !slices.Equal(got, []string{"p", "q", "other"}) {
			t.Errorf("asked about %v", got)
		}
		if len(w.unreserved) > 0 {
			t.Errorf("%v are unreserved and not retried", w.unreserved)
		}
	})
}

// rule: S8.47
func TestAPodThatLeavesASuspendedPodGroupIsNotTried(t *testing.T) {
	withSlowFilter(t, func(w *slowFilter) {
		w.node("a")
		w.gang("workers", 1, 10)
		w.set("p", prioritized(10), grouped("workers"))
		w.set("q", prioritized(10), grouped("workers"))
		w.after()
		w.remove("p", prioritized(10), grouped("workers"))
		w.answer("p")
		w.answer("q")
		w.after("bind q to a", "event Scheduled of q: *", "podgroup workers Scheduled: ")
	})
}

// The attempt ends without a response, and what came meanwhile is attempted.
// rule: S8.47
func TestASuspendedPodGroupWithoutPodsEnds(t *testing.T) {
	withSlowFilter(t, func(w *slowFilter) {
		w.node("a")
		w.gang("workers", 1, 10)
		w.set("p", prioritized(10), grouped("workers"))
		w.after()
		w.set("q", prioritized(10), grouped("workers"))
		w.queued("q", "ungrouped")
		w.remove("p", prioritized(10), grouped("workers"))
		w.answer("q")
		w.after("bind q to a", "event Scheduled of q: *", "podgroup workers Scheduled: ")
	})
}

// rule: S8.47
func TestAPodGroupThatIsDeletedWhileItWaitsEnds(t *testing.T) {
	withSlowFilter(t, func(w *slowFilter) {
		w.node("a")
		w.gang("workers", 1, 10)
		w.set("p", prioritized(10), grouped("workers"))
		w.after()
		w.Do(func() {
			w.RemovePodGroup(&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "workers"}})
		})
		w.after()
		w.queued("p", "ungrouped")
		w.gang("workers", 1, 10)
		w.answer("p")
		w.after("bind p to a", "event Scheduled of p: *", "podgroup workers Scheduled: ")
	})
}

// twoCalls asks two programs about each pod, and ignores that they do not answer.
type twoCalls struct{ *slowFilter }

func (f *twoCalls) Filter(c *framework.Cycle) framework.Status {
	for range 2 {
		if s := f.slowFilter.Filter(c); errors.Is(s.Err, framework.ErrSuspended) {
			return s
		}
	}
	return framework.Status{}
}

// Programs that do not answer delay a pod of a group no longer than another pod.
// rule: S8.50
func TestTheTimeOfAPodIsNotRenewedByAFurtherRunOfItsPodGroup(t *testing.T) {
	f := &twoCalls{&slowFilter{}}
	change := func(cfg *LoopConfig) {
		f.fixture = cfg.API.(*fixture)
		f.late, cfg.PodGroups = f, true
	}
	withLoopConfig(t, change, func(w *fixture) {
		w.node("a")
		w.gang("workers", 2, 10)
		w.set("p", prioritized(10), grouped("workers"))
		w.set("q", prioritized(10), grouped("workers"))
		time.Sleep(2 * framework.AttemptTimeout)
		w.after("bind p to a", "bind q to a", "event Scheduled of p: *", "event Scheduled of q: *", "podgroup workers Scheduled: ")
	})
}

// A group that is not scheduled gives up what its pods reserved.
func TestThePodsOfAPodGroupThatFailsAreUnreserved(t *testing.T) {
	withSlowFilter(t, func(w *slowFilter) {
		w.node("a")
		w.gang("workers", 2, 10)
		w.set("p", prioritized(10), grouped("workers"))
		w.set("q", prioritized(10), cpu("2"), grouped("workers"))
		w.answer("p")
		w.after("status of p:*", "status of q:*", "event FailedScheduling of p: *", "event FailedScheduling of q: *", "podgroup workers Unschedulable: *")
		if !slices.Equal(w.unreserved, []string{"p"}) {
			t.Errorf("%v are unreserved and not retried", w.unreserved)
		}
	})
}

// rule: S8.48
func TestPodsAreScheduledWhileAnExplanationWaits(t *testing.T) {
	withSlowFilter(t, func(w *slowFilter) {
		w.node("a")
		w.set("p", cpu("3"))
		w.after("status of p: Unschedulable", "event FailedScheduling of p: *") // without a request
		w.node("b", func(n *v1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("4") })
		var x Explanation
		explained := make(chan struct{})
		w.answer("p")
		w.after("bind p to b", "event Scheduled of p: *")
		w.set("p", cpu("3"), on("b"))
		go func() {
			defer close(explained)
			x, _, _ = w.Explain(w.Context(), w.now(), "p")
		}()
		synctest.Wait()
		w.set("q")
		synctest.Wait()
		w.answer("q")
		w.after("bind q to a", "event Scheduled of q: *")
		w.do(func() { close(w.asked[1].response) })
		<-explained
		if x.Feasible != 1 || x.Node != "b" || x.Refusal != "" {
			t.Errorf("explained %+v", x)
		}
		w.holds("b", "p")
		if got := w.pods(); !slices.Equal(got, []string{"p", "p", "q"}) {
			t.Errorf("asked about %v", got)
		}
	})
}
