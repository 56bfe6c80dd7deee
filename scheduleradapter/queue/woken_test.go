package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// roomProfile has a plugin Fit, whose hint for a pod that left returns Queue while there is
// room.
type roomProfile struct{ room *bool }

func (roomProfile) PreEnqueue(*nodetable.Pod) framework.Status { return framework.Status{} }

func (p roomProfile) Hints() map[string][]framework.EventHint {
	return map[string][]framework.EventHint{"Fit": {
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, Hint: func(*framework.Occurrence, *nodetable.Pod) (framework.Hint, error) {
			if *p.room {
				return framework.Queue, nil
			}
			return framework.QueueSkip, nil
		}},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add}},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodLabel}},
	}}
}

// TestAPodThatADepartureWokeIsAttemptedWhileThereIsRoom has three pods that lack room, one of
// which takes the room that a pod leaves. What else happens before their turn decides whether
// the others are attempted.
// rule: S3.4
func TestAPodThatADepartureWokeIsAttemptedWhileThereIsRoom(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	left := func() *framework.Occurrence {
		return &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, Left: nodetable.Intern("node")}
	}
	for name, c := range map[string]struct {
		meanwhile func(q *Queue, room *bool)
		popped    []types.UID
	}{
		"the room is used": {func(*Queue, *bool) {}, nil},
		"a node is added": {func(q *Queue, _ *bool) {
			q.MoveAllToActiveOrBackoff(now, &framework.Occurrence{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add}})
		}, []types.UID{"b", "c"}},
		"another pod leaves": {func(q *Queue, room *bool) { *room = true; q.MoveAllToActiveOrBackoff(now, left()) }, []types.UID{"b", "c"}},
		"a pod is changed":   {func(q *Queue, _ *bool) { q.Update(now, q.Get("c").Pod, framework.UpdatePodLabel) }, []types.UID{"c"}},
		"a pod is activated": {func(q *Queue, _ *bool) { q.Activate(now, "b") }, []types.UID{"b"}},
		"a pod is deleted":   {func(q *Queue, _ *bool) { q.Delete("b") }, nil},
		"too many events to ask for": {func(q *Queue, _ *bool) {
			for range mostEvents + 1 {
				q.MoveAllToActiveOrBackoff(now, left())
			}
		}, []types.UID{"b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			room := true
			q := New(now, Config{Less: byPriority, Profiles: map[string]Profile{"": roomProfile{&room}}})
			for _, name := range []string{"a", "b", "c"} {
				q.Add(now, nodetable.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}))
			}
			for range 3 {
				q.Fail(now, q.Pop(now), Rejection{Unschedulable: []string{"Fit"}})
			}
			q.MoveAllToActiveOrBackoff(now, left())
			first := q.Pop(now)
			if first == nil || first.Pod.UID != "a" || q.Depth(Active) != 2 {
				t.Fatalf("popped %v, %d active", first, q.Depth(Active))
			}
			room = false
			c.meanwhile(q, &room)
			var popped []types.UID
			for e := q.Pop(now); e != nil; e = q.Pop(now) {
				popped = append(popped, e.Pod.UID)
			}
			if !slices.Equal(popped, c.popped) {
				t.Errorf("popped %v, want %v", popped, c.popped)
			}
			for _, e := range q.Entries() {
				if attempted := slices.Contains(append(popped, "a"), e.Pod.UID); attempted != (e.Place() == InFlight) || !attempted && e.Place() != Unschedulable {
					t.Errorf("%s is %v", e.Pod.UID, e.Place())
				}
				q.Delete(e.Pod.UID)
			}
			if events := q.InFlightEvents(); len(events) > 0 {
				t.Errorf("the empty queue keeps events: %s", fmt.Sprint(events))
			}
		})
	}
}
