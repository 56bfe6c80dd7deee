package queue

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

var sizes = []int{10_000, 100_000}

func benchPods(b *testing.B, n int) []*nodetable.Pod {
	pods := make([]*nodetable.Pod, n)
	for i := range pods {
		name := fmt.Sprint("pod-", i)
		priority := int32(i * 7919 % 10)
		pod := nodetable.NewPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       v1.PodSpec{Priority: &priority},
		})
		pods[i] = pod
	}
	return pods
}

// benchProfile has no gates; its hints return one result.
type benchProfile framework.Hint

func (benchProfile) PreEnqueue(*nodetable.Pod) framework.Status { return framework.Status{} }

func (p benchProfile) Hints() map[string][]framework.EventHint {
	on := func(resource framework.Resource, action framework.Action) framework.EventHint {
		return framework.EventHint{
			Event: framework.Event{Resource: resource, Action: action},
			Hint:  func(*framework.Occurrence, *nodetable.Pod) (framework.Hint, error) { return framework.Hint(p), nil },
		}
	}
	return map[string][]framework.EventHint{
		"Fit": {
			on(framework.NodeResource, framework.Add|framework.UpdateNodeAllocatable),
			on(framework.AssignedPod, framework.Delete),
		},
		"Taints": {on(framework.NodeResource, framework.Add|framework.UpdateNodeTaint)},
		"Spread": {on(framework.PodResource, framework.All)},
	}
}

func benchQueue(hint framework.Hint) *Queue {
	return New(benchStart, Config{
		InitialBackoff: time.Second,
		MaxBackoff:     10 * time.Second,
		Less:           byPriority,
		Profiles:       map[string]Profile{"": benchProfile(hint)},
	})
}

var benchStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// resting is a queue with unschedulable pods.
func resting(pods []*nodetable.Pod, hint framework.Hint) *Queue {
	q := benchQueue(hint)
	for _, p := range pods {
		q.Add(benchStart, p)
	}
	for range pods {
		q.Fail(benchStart, q.Pop(benchStart), Rejection{Unschedulable: []string{"Fit"}})
	}
	return q
}

func perPod(b *testing.B, pods int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pods), "ns/pod")
}

func BenchmarkAddAll(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pods := benchPods(b, n)
			b.ReportAllocs()
			for b.Loop() {
				q := benchQueue(framework.QueueSkip)
				for i, p := range pods {
					q.Add(benchStart.Add(time.Duration(i)), p)
				}
			}
			perPod(b, n)
		})
	}
}

// BenchmarkPopAndFail pops a pod and fails it.
func BenchmarkPopAndFail(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := resting(benchPods(b, n), framework.QueueSkip)
			for uid := range q.entries {
				q.Activate(benchStart, uid)
			}
			rejection := Rejection{Unschedulable: []string{"Taints", "Fit"}}
			happened := &framework.Occurrence{Event: framework.Event{Resource: framework.UnscheduledPod, Action: framework.Add}}
			now := benchStart
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				e := q.Pop(now)
				q.MoveAllToActiveOrBackoff(now, happened)
				q.Fail(now, e, rejection)
				q.Activate(now, e.Pod.UID)
			}
		})
	}
}

// BenchmarkEvent handles an event with unschedulable pods.
func BenchmarkEvent(b *testing.B) {
	for _, n := range sizes {
		for _, c := range []struct {
			name  string
			event framework.Event
		}{
			{"asked", framework.Event{Resource: framework.NodeResource, Action: framework.UpdateNodeAllocatable}},
			{"passed-over", framework.Event{Resource: framework.NodeResource, Action: framework.UpdateNodeTaint}},
			{"not-registered", framework.Event{Resource: framework.NodeResource, Action: framework.UpdateNodeCondition}},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				q := resting(benchPods(b, n), framework.QueueSkip)
				happened := &framework.Occurrence{Event: c.event}
				b.ReportAllocs()
				for b.Loop() {
					q.MoveAllToActiveOrBackoff(benchStart, happened)
				}
			})
		}
	}
}

// BenchmarkEventThatWakesAll moves all pods to backoff and pops them.
func BenchmarkEventThatWakesAll(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := resting(benchPods(b, n), framework.Queue)
			happened := &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}}
			rejection := Rejection{Unschedulable: []string{"Fit"}}
			b.ReportAllocs()
			for b.Loop() {
				if moved := q.MoveAllToActiveOrBackoff(benchStart, happened); moved != n {
					b.Fatalf("%d moved", moved)
				}
				for range n {
					q.Fail(benchStart, q.Pop(benchStart), rejection)
				}
			}
			perPod(b, n)
		})
	}
}

func BenchmarkNext(b *testing.B) {
	q := resting(benchPods(b, 100_000), framework.QueueSkip)
	b.ReportAllocs()
	for b.Loop() {
		q.Next(benchStart)
	}
}
