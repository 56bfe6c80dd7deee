package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// groups is a queue with pod groups, in the order of arrival.
var groups = Config{
	Less:           func(framework.Queued, framework.Queued) bool { return false },
	InitialBackoff: time.Second, MaxBackoff: 10 * time.Second, MaxUnschedulable: time.Hour, PodGroups: true,
}

// TestAPodGroupWhoseBindingsFailBacksOff has an API server refuse the bindings of a group after each attempt, until one pod is bound.
//
// rule: S1.116
func TestAPodGroupWhoseBindingsFailBacksOff(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := New(now, groups)
	q.SetPodGroup(now, &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "g"}})
	name := "g"
	for i := range 3 {
		q.Add(now, nodetable.NewPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))},
			Spec:       v1.PodSpec{SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: &name}},
		}))
	}
	// attempt waits for the group's next attempt, in which its pods go to the binding cycle.
	attempt := func() (members []*Entry, waited time.Duration) {
		begun := now
		group := q.Pop(now)
		for ; group == nil; group = q.Pop(now) {
			if now = now.Add(100 * time.Millisecond); now.Sub(begun) > time.Minute {
				t.Fatal("the group is attempted no more")
			}
		}
		members = slices.Clone(group.Members)
		for _, e := range members {
			q.Permit(e)
		}
		q.EndPodGroup(now, group, framework.Success)
		return members, now.Sub(begun)
	}
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
		members, waited := attempt()
		if len(members) != 3 || waited < want || waited > want+window+100*time.Millisecond {
			t.Errorf("attempt %d: %d pods after %v, expected 3 after %v", i, len(members), waited, want)
		}
		for _, e := range members {
			q.Fail(now, e, Rejection{})
		}
	}
	members, _ := attempt()
	q.Delete(members[0].Pod.UID) // it is bound
	q.Fail(now, members[1], Rejection{})
	q.Fail(now, members[2], Rejection{})
	if members, waited := attempt(); len(members) != 2 || waited > 2*time.Second+window {
		t.Errorf("after a pod was bound: %d pods after %v", len(members), waited)
	}
}

// TestABindingThatFailsDuringTheNextAttemptBacksOff has one pod of a group fail while another is in flight.
func TestABindingThatFailsDuringTheNextAttemptBacksOff(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := New(now, groups)
	q.SetPodGroup(now, &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "g"}})
	name := "g"
	add := func(uid types.UID) {
		q.Add(now, nodetable.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}, Spec: v1.PodSpec{SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: &name}}}))
	}
	add("slow")
	group := q.Pop(now)
	slow := group.Members[0]
	q.Permit(slow)
	q.EndPodGroup(now, group, framework.Success)
	add("next")
	group = q.Pop(now)
	q.Fail(now, slow, Rejection{})
	q.Permit(group.Members[0])
	if place := q.EndPodGroup(now, group, framework.Success); place != Backoff {
		t.Errorf("the group is %v", place)
	}
}
