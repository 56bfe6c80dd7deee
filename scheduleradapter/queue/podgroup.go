package queue

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// podGroup is a PodGroup with its pods that have no node. Its queued pods are one
// entry, which is popped as a whole.
type podGroup struct {
	key    nodetable.PodGroupKey
	object *schedulingv1beta1.PodGroup // nil: the queue does not have the PodGroup
	entry  *Entry                      // nil: no pod is queued
	pods   map[types.UID]*Entry        // queued, ungrouped, in flight and binding
	// failed counts the attempts with a failed binding since a pod of the group was last bound. The group keeps the count
	// because the entry of an attempt is gone when its bindings fail. late says that a binding failed while the group was in
	// flight again.
	failed int
	late   bool
}

// IsPodGroup reports whether the entry is a pod group, whose Pod is only its name,
// uid, priority and scheduler name.
func (e *Entry) IsPodGroup() bool { return e.group != nil && e.group.entry == e }

// PodGroup is the PodGroup of an entry; nil: it has none.
func (e *Entry) PodGroup() *schedulingv1beta1.PodGroup {
	if e.group == nil {
		return nil
	}
	return e.group.object
}

// PodGroup finds a PodGroup; nil: the queue does not have it.
func (q *Queue) PodGroup(key nodetable.PodGroupKey) *schedulingv1beta1.PodGroup {
	if g := q.groups[key]; g != nil {
		return g.object
	}
	return nil
}

// PodGroups yields the PodGroups.
func (q *Queue) PodGroups() iter.Seq2[nodetable.PodGroupKey, *schedulingv1beta1.PodGroup] {
	return func(yield func(nodetable.PodGroupKey, *schedulingv1beta1.PodGroup) bool) {
		for key, g := range q.groups {
			if g.object != nil && !yield(key, g.object) {
				return
			}
		}
	}
}

// PodsOfGroup yields the uids of a group's pods, in no order.
func (q *Queue) PodsOfGroup(key nodetable.PodGroupKey) iter.Seq[types.UID] {
	if g := q.groups[key]; g != nil {
		return maps.Keys(g.pods)
	}
	return func(func(types.UID) bool) {}
}

// SetPodGroup adds or updates a PodGroup. Pods that wait for it are queued.
func (q *Queue) SetPodGroup(now time.Time, object *schedulingv1beta1.PodGroup) {
	g := q.groupOf(nodetable.PodGroupKey{Namespace: object.Namespace, Name: object.Name})
	g.object = object
	if e := g.entry; e != nil {
		e.Pod = leader(object, e.Pod.Object.Spec.SchedulerName)
		if e.place == Active || e.place == Backoff {
			e.heap.fix(e)
		}
		return
	}
	for _, e := range slices.SortedFunc(maps.Values(g.pods), func(a, b *Entry) int { return cmp.Compare(a.arrival, b.arrival) }) {
		if e.place == Ungrouped {
			q.join(now, e)
		}
	}
}

// RemovePodGroup removes a PodGroup. Its queued pods wait until it exists again.
func (q *Queue) RemovePodGroup(key nodetable.PodGroupKey) {
	g := q.groups[key]
	if g == nil {
		return
	}
	g.object = nil
	if e := g.entry; e != nil && e.place != InFlight {
		members := e.Members
		q.dissolve(g)
		for _, member := range members {
			q.ungroup(member)
		}
	}
	q.drop(g)
}

// groupOf finds or adds a group.
func (q *Queue) groupOf(key nodetable.PodGroupKey) *podGroup {
	g := q.groups[key]
	if g == nil {
		g = &podGroup{key: key, pods: map[types.UID]*Entry{}}
		q.groups[key] = g
	}
	return g
}

// drop forgets a group without PodGroup and pods.
func (q *Queue) drop(g *podGroup) {
	if g.object == nil && len(g.pods) == 0 && g.entry == nil {
		delete(q.groups, g.key)
	}
}

// podGroupKind is the kind of the object that stands for a group; that of pods is empty.
const podGroupKind = "PodGroup"

// leader stands for a group where the queue, its plugins and preemption read a pod.
func leader(g *schedulingv1beta1.PodGroup, scheduler string) *nodetable.Pod {
	return nodetable.NewPod(&v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: schedulingv1beta1.SchemeGroupVersion.String(), Kind: podGroupKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, UID: g.UID},
		Spec:       v1.PodSpec{SchedulerName: scheduler, Priority: new(ptr.Deref(g.Spec.Priority, 0))},
	})
}

// join queues a pod with its group: with the group's entry if there is one, else as
// a new active entry. While the PodGroup does not exist, or the group is in flight,
// the pod waits. Source: kube-scheduler's addPodGroupMember.
func (q *Queue) join(now time.Time, e *Entry) Place {
	g := e.group
	if g.object == nil || g.entry != nil && g.entry.place == InFlight {
		q.ungroup(e)
		return Ungrouped
	}
	if g.entry == nil {
		q.arrivals++
		g.entry = &Entry{
			Queued:  framework.Queued{Pod: leader(g.object, e.Pod.Object.Spec.SchedulerName), Timestamp: e.Timestamp, History: &framework.History{FirstAttempt: e.FirstAttempt}},
			Added:   e.Added,
			profile: e.profile,
			arrival: q.arrivals,
			at:      [slots]int{-1, -1},
			group:   g,
		}
		if g.failed > 0 {
			g.entry.Errors = g.failed
			g.entry.Backoff = q.backoffExpiration(g.entry, now)
		}
	}
	q.insert(g.entry, e)
	q.settle(now, g.entry)
	return e.place
}

func (q *Queue) insert(group, e *Entry) {
	at, _ := slices.BinarySearchFunc(group.Members, e, byMembership)
	group.Members = slices.Insert(group.Members, at, e)
	e.Gate = group.Gate
	q.putMember(e, group.place, podAdded)
}

// byMembership is the order in which the pods of a group are tried. Source:
// kube-scheduler's PodGroupMemberPodsOrderingFunc.
func byMembership(a, b *Entry) int {
	return cmp.Or(
		cmp.Compare(b.Pod.Priority, a.Pod.Priority),
		cmp.Compare(b.Attempts, a.Attempts),
		a.Timestamp.Compare(b.Timestamp),
		cmp.Compare(a.Pod.Object.Name, b.Pod.Object.Name),
	)
}

// settle runs PreEnqueue again for a group whose pods changed. A gated group keeps
// its place until an event moves it.
func (q *Queue) settle(now time.Time, group *Entry) {
	switch group.place {
	case Nowhere, Active:
		strategy := queueImmediately
		if group.Errors > 0 {
			strategy = queueAfterBackoff
		}
		q.enqueue(group, now, strategy, group.by, podAdded)
	case Backoff:
		q.enqueue(group, now, queueAfterBackoff, group.by, podAdded)
	}
}

// ungroup takes a pod out of the queue until its group is queued.
func (q *Queue) ungroup(e *Entry) {
	e.Gate = framework.Status{}
	if e.group.object == nil {
		e.Gate = framework.Status{
			Code: framework.UnschedulableAndUnresolvable, Plugin: framework.GangScheduling,
			Reason: fmt.Sprintf("waiting for pods's pod group %q to appear in scheduling queue", e.group.key.Name),
		}
	}
	q.putMember(e, Ungrouped, podAdded)
}

// dissolve removes the entry of a group.
func (q *Queue) dissolve(g *podGroup) {
	e := g.entry
	e.Members = nil
	q.put(e, Nowhere, nil, framework.Event{})
	g.entry = nil
}

// leave removes a pod from the entry of its group.
func (q *Queue) leave(now time.Time, e *Entry) {
	group := e.group.entry
	if group == nil {
		return
	}
	i := slices.Index(group.Members, e)
	if i < 0 {
		return
	}
	group.Members = slices.Delete(slices.Clone(group.Members), i, i+1)
	switch {
	case group.place == InFlight:
	case len(group.Members) == 0:
		q.dissolve(e.group)
	default:
		q.settle(now, group)
	}
}

// putMember changes the place of a pod of a group, which is in no heap.
func (q *Queue) putMember(e *Entry, to Place, why framework.Event) {
	from := e.place
	e.place, e.Unschedulable, e.Pending = to, nil, nil
	if to == Backoff {
		e.Backoff = e.group.entry.Backoff
	}
	q.count(e, from, why)
}

// updateMember takes the new version of a pod of a group.
func (q *Queue) updateMember(now time.Time, e *Entry, old *nodetable.Pod, changed framework.Action) Place {
	group := e.group.entry
	if e.place != Gated || group == nil {
		return e.place
	}
	for bits := changed; bits != 0 && group.place == Gated; bits &= bits - 1 {
		own := &framework.Occurrence{Event: framework.Event{Resource: framework.TargetPod, Action: bits & -bits}, OldPod: old, Pod: e.Pod}
		if o := group.by.hintsOf(own.Event).isPodWorthRequeuing(e.Pod, own); o != queueSkip {
			q.enqueue(group, now, o, group.by, own.Event)
		}
	}
	return e.place
}

// failMember ends the attempt of a pod of a group, which waits for the end of the
// group's attempt, or joins the group again.
func (q *Queue) failMember(now time.Time, e *Entry, by Rejection, isError bool) Place {
	e.Timestamp, e.Flushed = now, false
	if g := e.group; e.place == Binding && g.entry == nil {
		g.failed++
	} else {
		g.late = g.late || e.place == Binding
	}
	if isError {
		e.Errors++
	} else {
		e.Errors = 0
		e.Unsuccessful++
	}
	q.leave(now, e)
	place := q.join(now, e)
	e.Unschedulable, e.Pending = by.Unschedulable, by.Pending
	return place
}

// EndPodGroup ends the attempt of a group, after Fail or Permit for each of its pods.
// The pods that have no node return to the queue: at once after Success, otherwise
// after the backoff. The pods of a PodGroup that was deleted wait for another, also those in
// flight. Source: kube-scheduler's AddAttemptedPodGroupIfNeeded.
func (q *Queue) EndPodGroup(now time.Time, e *Entry, code framework.Code) Place {
	g := e.group
	if g.object == nil {
		for _, pod := range g.pods {
			if pod.place == InFlight || pod.place == Ungrouped {
				q.ungroup(pod)
			}
		}
	}
	var left []*Entry
	attempted := false
	for _, pod := range g.pods {
		if pod.place == Ungrouped && g.object != nil {
			left = append(left, pod)
			attempted = attempted || pod.Attempts > 0
		}
	}
	if g.late && code == framework.Success {
		code = framework.Error
	}
	g.late = false
	if len(left) == 0 {
		q.dissolve(g)
		q.drop(g)
		return Nowhere
	}
	strategy := queueAfterBackoff
	switch {
	case code == framework.Success:
		strategy = queueImmediately
		e.Errors, e.Unsuccessful = 0, 0
	case code.Rejected():
		e.Errors = 0
		e.Unsuccessful++
	default:
		e.Errors++
	}
	if code != framework.Success || !attempted {
		e.Timestamp = now
	}
	slices.SortFunc(left, byMembership)
	e.Members, e.Flushed = left, false
	if code != framework.Success {
		e.Backoff = q.backoffExpiration(e, now)
	}
	return q.enqueue(e, now, strategy, nil, attemptFailed)
}

// longestBackoff is MaxBackoff, for a group times the square root of its size.
func (q *Queue) longestBackoff(e *Entry) time.Duration {
	if n := len(e.Members); n > 1 {
		return time.Duration(float64(q.cfg.MaxBackoff) * math.Sqrt(float64(n)))
	}
	return q.cfg.MaxBackoff
}

// preEnqueue runs PreEnqueue for a pod, or for all pods of a group: if a pod is
// gated, the group is.
func (q *Queue) preEnqueue(e *Entry) framework.Status {
	if !e.IsPodGroup() {
		return e.profile.preEnqueue(e.Pod)
	}
	var gate framework.Status
	for _, member := range e.Members {
		if member.Gate = member.profile.preEnqueue(member.Pod); !member.Gate.OK() {
			gate = member.Gate
		}
	}
	for _, member := range e.Members {
		if member.Gate.OK() {
			member.Gate = gate
		}
	}
	return gate
}

// worth evaluates the hints for a pod, or for the pods of a group, of which the best
// strategy counts.
func (h eventHints) worth(e *Entry, o *framework.Occurrence) queueingStrategy {
	if !e.IsPodGroup() {
		return h.isPodWorthRequeuing(e.Pod, o)
	}
	best := queueSkip
	for _, member := range e.Members {
		best = max(best, h.isPodWorthRequeuing(member.Pod, o))
	}
	return best
}
