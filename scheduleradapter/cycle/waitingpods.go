package cycle

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// waitingPod is an assumed pod that waits for Permit.
type waitingPod struct {
	Binding
	entry     *queue.Entry
	since     time.Time
	deadlines map[string]time.Time // by plugin that has not allowed the pod
}

func (s *Scheduler) addWaitingPod(b Binding, timeouts map[string]time.Duration, now time.Time) {
	w := &waitingPod{Binding: b, since: now, deadlines: make(map[string]time.Time, len(timeouts))}
	for plugin, timeout := range timeouts {
		w.deadlines[plugin] = now.Add(timeout)
		heap.Push(&s.permitDeadlines, permitDeadline{now.Add(timeout), plugin, w})
	}
	s.waiting[b.Pod.UID] = w
	s.sweepPermitDeadlines()
}

// permitDeadline is when the wait of a pod for a plugin ends.
type permitDeadline struct {
	at     time.Time
	plugin string
	pod    *waitingPod
}

// permitDeadlines are a heap, with those of waits that have ended.
type permitDeadlines []permitDeadline

func (d permitDeadlines) Len() int { return len(d) }
func (d permitDeadlines) Less(i, j int) bool {
	a, b := &d[i], &d[j]
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.pod.Pod.UID, b.pod.Pod.UID), cmp.Compare(a.plugin, b.plugin)) < 0
}
func (d permitDeadlines) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *permitDeadlines) Push(x any)   { *d = append(*d, x.(permitDeadline)) }
func (d *permitDeadlines) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = permitDeadline{}
	*d = (*d)[:last]
	return x
}

// awaits reports whether the pod still waits for the plugin.
func (s *Scheduler) awaits(d permitDeadline) bool {
	_, asked := d.pod.deadlines[d.plugin]
	return asked && s.waiting[d.pod.Pod.UID] == d.pod
}

// sweepPermitDeadlines drops those of waits that have ended when the number has doubled.
func (s *Scheduler) sweepPermitDeadlines() {
	if len(s.permitDeadlines) < s.permitDeadlineLimit {
		return
	}
	s.permitDeadlines = slices.DeleteFunc(s.permitDeadlines, func(d permitDeadline) bool { return !s.awaits(d) })
	heap.Init(&s.permitDeadlines)
	s.permitDeadlineLimit = 2*len(s.permitDeadlines) + 64
}

// IsWaiting reports whether a pod waits for Permit.
func (s *Scheduler) IsWaiting(uid types.UID) bool { return s.waiting[uid] != nil }

// WaitingPodCount is the number of pods that wait for Permit.
func (s *Scheduler) WaitingPodCount() int { return len(s.waiting) }

// WaitingPods yields the pods that wait for Permit by uid, with the plugins that
// have not allowed them, sorted.
func (s *Scheduler) WaitingPods() iter.Seq2[*nodetable.Pod, []string] {
	return func(yield func(*nodetable.Pod, []string) bool) {
		for _, uid := range slices.Sorted(maps.Keys(s.waiting)) {
			w := s.waiting[uid]
			if !yield(w.Pod, slices.Sorted(maps.Keys(w.deadlines))) {
				return
			}
		}
	}
}

// Allow records that a plugin allows a waiting pod. When the last plugin allows it,
// Allow returns the attempt, whose binding cycle is to be run; otherwise nil.
func (s *Scheduler) Allow(uid types.UID, plugin string) *Attempt {
	w := s.waiting[uid]
	if w == nil {
		return nil
	}
	if delete(w.deadlines, plugin); len(w.deadlines) > 0 {
		return nil
	}
	delete(s.waiting, uid)
	a := &Attempt{Entry: w.entry, Pod: w.Pod, Number: w.entry.Attempts}
	s.permitted(a, w.Binding)
	return a
}

// Reject ends the wait of a pod with a plugin's status and forgets the pod. It does
// nothing for a pod that does not wait.
func (s *Scheduler) Reject(now time.Time, uid types.UID, status framework.Status) {
	w := s.waiting[uid]
	if w == nil {
		return
	}
	delete(s.waiting, uid)
	s.forget(w.Binding)
	r := rejected(status)
	s.handleSchedulingFailure(now, &Attempt{Entry: w.entry, Pod: w.entry.Pod, Number: w.entry.Attempts, Message: r.Message, waited: w}, r)
	s.PodLeft(now, w.entry.Pod, w.Node.Name)
}

// permitDeadline is the next timeout of a waiting pod, and the plugin that set it;
// false: no pod waits.
func (s *Scheduler) permitDeadline() (at time.Time, uid types.UID, plugin string, found bool) {
	for len(s.permitDeadlines) > 0 {
		if d := s.permitDeadlines[0]; s.awaits(d) {
			return d.at, d.pod.Pod.UID, d.plugin, true
		}
		heap.Pop(&s.permitDeadlines)
	}
	return at, uid, plugin, false
}
