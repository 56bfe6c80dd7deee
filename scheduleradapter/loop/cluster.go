package loop

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// What the API server tells. All of this is for the loop's goroutine: Do brings
// it there.

// SetNode takes over a node.
func (l *Loop) SetNode(n *nodetable.Node) {
	var was *nodetable.Node
	if row := l.Table.Row(n.Name); row != nodetable.NoRow {
		was = l.Table.Node(row)
	}
	for changed := framework.NodeEvents(l.Table.SetNode(n)); changed != 0; changed &= changed - 1 {
		l.happened(framework.Occurrence{
			Event: framework.Event{Resource: framework.NodeResource, Action: changed & -changed}, OldNode: was, Node: n,
		})
	}
}

// RemoveNode forgets a node. The pods there are the API server's to remove.
func (l *Loop) RemoveNode(name string) {
	symbol := nodetable.Intern(name)
	row := l.Table.Row(symbol)
	if row == nodetable.NoRow {
		return
	}
	was := l.Table.Node(row)
	l.Table.RemoveNode(symbol)
	l.happened(framework.Occurrence{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Delete}, OldNode: was})
}

// SetHeadroom takes over what a node's evictd says of it; nil forgets it. Hints
// take it for the condition it foretells.
func (l *Loop) SetHeadroom(name string, h *nodetable.Headroom) {
	symbol := nodetable.Intern(name)
	if !l.Table.SetHeadroom(symbol, h) {
		return
	}
	if row := l.Table.Row(symbol); row != nodetable.NoRow {
		n := l.Table.Node(row)
		l.happened(framework.Occurrence{
			Event: framework.Event{Resource: framework.NodeResource, Action: framework.UpdateNodeCondition}, OldNode: n, Node: n,
		})
	}
}

// Changed tells of an object that only hints look at; the old one is nil where
// it came, the new one where it is gone.
func (l *Loop) Changed(resource framework.Resource, was, is any) {
	action := framework.Update
	switch {
	case was == nil:
		action = framework.Add
	case is == nil:
		action = framework.Delete
	}
	l.happened(framework.Occurrence{Event: framework.Event{Resource: resource, Action: action}, OldObject: was, Object: is})
}

func (l *Loop) happened(o framework.Occurrence) {
	begin := time.Now()
	l.Queue.Move(l.now(), &o)
	l.metrics.handled(o.Event, time.Since(begin))
}

// SetPod takes over a pod that has not ended. The API server's word counts more
// than what was decided here.
func (l *Loop) SetPod(pod *nodetable.Pod) {
	if node := pod.Object.Spec.NodeName; node != "" {
		l.setAssigned(pod, node)
		return
	}
	switch f := l.assumed[pod.UID]; {
	case f != nil && f.landed: // older than the binding
	case f != nil:
		l.update(pod)
	case !l.Ours(pod) || pod.Terminating:
		l.removePending(pod)
	default:
		l.update(pod)
	}
}

// setAssigned takes over a pod that has a node, from here or from elsewhere.
func (l *Loop) setAssigned(pod *nodetable.Pod, node string) {
	l.settle(pod.UID, func(f *flight) { f.node = node })
	l.release(pod.UID)
	if pod.Terminating {
		if !vanishes(pod.Object) {
			defer l.heard(pod.UID)
		}
	} else if d, left := l.leaving[pod.UID]; left { // from before it was deleted
		pod = Leaving(pod, d.gone, v1.PodReasonPreemptionByScheduler)
	}
	was, _ := l.Table.Find(pod.UID)
	l.Table.PlaceOn(pod, nodetable.Intern(node))
	o := framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add}, OldPod: nil, Pod: pod}
	if was == nil || was.Object.Spec.NodeName == "" {
		l.happened(o)
		return
	}
	for changed := framework.PodEvents(was, pod); changed != 0; changed &= changed - 1 {
		updated := o
		updated.Action, updated.OldPod = changed&-changed, was
		l.happened(updated)
	}
}

// settle lets the API server have its say about a pod that is being bound.
func (l *Loop) settle(uid types.UID, say func(*flight)) {
	f := l.assumed[uid]
	if f == nil {
		return
	}
	if say(f); f.landed {
		delete(l.assumed, uid)
	} else if f.gone || f.node != f.Node {
		f.cancel()
	}
}

// release takes a pod out of everything that is for pods without a node.
func (l *Loop) release(uid types.UID) {
	l.Bound(uid)
	l.Deny(l.now(), uid, framework.Status{Code: framework.Unschedulable, Reason: "the pod is gone"}) // out of the queue, it is not told of
	delete(l.wrote, uid)
	delete(l.permits, uid)
}

// update takes over a pod that is ours to place.
func (l *Loop) update(pod *nodetable.Pod) {
	now := l.now()
	if node, unconfirmed := l.wrote[pod.UID]; unconfirmed {
		if pod.Object.Status.NominatedNodeName == node {
			delete(l.wrote, pod.UID)
		} else {
			pod = Changed(pod, func(object *v1.Pod) { object.Status.NominatedNodeName = node })
		}
	}
	e := l.Queue.Get(pod.UID)
	if e == nil {
		l.Queue.Add(now, pod)
		l.Adopt(now, pod)
		return
	}
	was, promised := e.Pod, l.Promises.Node(pod.UID)
	l.Queue.Update(now, pod, framework.PodEvents(was, pod))
	if l.assumed[pod.UID] != nil || l.Waits(pod.UID) {
		return // it has a node, for now
	}
	l.Promises.Update(was, pod)
	if node := l.Promises.Node(pod.UID); node != promised {
		l.awaitVictims(now, pod.UID, node, nil)
		if promised != "" {
			l.left(now, was)
		}
	}
}

// removePending takes over a pod without a node that is not ours to place, or not
// any more. Room that another scheduler has promised it is kept.
func (l *Loop) removePending(pod *nodetable.Pod) {
	node := ""
	if !l.Ours(pod) && !pod.Terminating {
		node = pod.Object.Status.NominatedNodeName
	}
	promised := l.Promises.Node(pod.UID)
	l.release(pod.UID)
	l.Promises.Nominate(pod, node)
	if promised != "" && promised != node {
		l.left(l.now(), pod)
	}
}

// RemovePod forgets a pod that has ended or is gone, as it was known last. One
// that is being bound keeps its node until its binding has ended.
func (l *Loop) RemovePod(pod *nodetable.Pod) {
	uid := pod.UID
	f := l.assumed[uid]
	l.settle(uid, func(f *flight) { f.gone = true })
	promised := l.Promises.Node(uid) != ""
	waited := l.Waits(uid)
	l.release(uid)
	defer l.heard(uid)
	if f != nil && !f.landed || waited {
		return // what has to follow does, when the binding ends, or did
	}
	was, _ := l.Table.Find(uid)
	l.Table.Displace(uid)
	if was != nil || promised {
		l.left(l.now(), pod)
	}
}
