package cycle

import (
	"reflect"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func withPodGroups(t *testing.T, test func(*fixture)) {
	withLoopConfig(t, func(cfg *LoopConfig) { cfg.PodGroups = true }, test)
}

// gang adds a PodGroup.
func (w *fixture) gang(name string, minCount, priority int32) {
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	group.Spec.Priority = &priority
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	w.Do(func() { w.SetPodGroup(group) })
}

func grouped(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }
}

// rule: S1.110
func TestAPodGroupIsGatedUntilItsVictimsAreDeleted(t *testing.T) {
	withPodGroups(t, func(w *fixture) {
		w.full()
		w.gang("workers", 2, 10)
		w.set("p", prioritized(10), grouped("workers"))
		w.set("q", prioritized(10), grouped("workers"))
		w.after("status of p:*", "status of q:*", "event FailedScheduling of p: *", "event FailedScheduling of q: *", "podgroup workers Unschedulable: *",
			"event Preempted of one: Preempted by podgroup uid-workers on node cluster", "event Preempted of two: Preempted by podgroup uid-workers on node cluster",
			"evict one for workers", "evict two for workers")
		w.queued("p", "gated")
		w.remove("one", on("a"))
		w.after()
		w.queued("p", "gated")
		w.remove("two", on("a"))
		w.after("bind p to a", "bind q to a", "event Scheduled of p: *", "event Scheduled of q: *", "podgroup workers Scheduled: ")
	})
}

// rule: S8.46
func TestAPodOfAGroupIsExplainedWithItsGroup(t *testing.T) {
	withPodGroups(t, func(w *fixture) {
		w.node("a")
		w.gang("workers", 3, 10)
		for _, name := range []string{"p", "q", "r"} {
			w.set(name, prioritized(10), cpu("1"), grouped("workers"))
		}
		synctest.Wait()
		for pod, want := range map[string]*GroupExplanation{
			"p":        {Name: "default/workers", MinCount: 3, Waiting: 3},
			"ordinary": nil,
		} {
			if want == nil {
				w.set(pod)
				synctest.Wait()
			}
			x, _, err := w.Explain(w.Context(), w.now(), pod)
			if err != nil || !reflect.DeepEqual(x.Group, want) {
				t.Errorf("%s: %+v, %v, expected %+v", pod, x.Group, err, want)
			}
		}
	})
}
