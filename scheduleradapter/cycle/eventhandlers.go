package cycle

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// The methods of this file handle informer events. Only the loop's goroutine may
// call them; see Do.

// SetNode adds or updates a node.
func (l *Loop) SetNode(n *nodetable.Node) {
	var old *nodetable.Node
	if row := l.Table.Row(n.Name); row != nodetable.NoRow {
		old = l.Table.Node(row)
	}
	for changed := framework.NodeEvents(l.Table.SetNode(n)); changed != 0; changed &= changed - 1 {
		l.handleClusterEvent(framework.Occurrence{
			Event: framework.Event{Resource: framework.NodeResource, Action: changed & -changed}, OldNode: old, Node: n,
		})
	}
}

// RemoveNode removes a node. Its pods remain until their own deletion events.
func (l *Loop) RemoveNode(name string) {
	symbol := nodetable.Intern(name)
	row := l.Table.Row(symbol)
	if row == nodetable.NoRow {
		return
	}
	old := l.Table.Node(row)
	l.Table.RemoveNode(symbol)
	l.handleClusterEvent(framework.Occurrence{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Delete}, OldNode: old})
}

// SetHeadroom sets the headroom that a node's evictd publishes; nil removes it.
// Queueing hints receive it as an update of the node's conditions.
func (l *Loop) SetHeadroom(name string, h *nodetable.Headroom) {
	symbol := nodetable.Intern(name)
	if !l.Table.SetHeadroom(symbol, h) {
		return
	}
	if row := l.Table.Row(symbol); row != nodetable.NoRow {
		n := l.Table.Node(row)
		l.handleClusterEvent(framework.Occurrence{
			Event: framework.Event{Resource: framework.NodeResource, Action: framework.UpdateNodeCondition}, OldNode: n, Node: n,
		})
	}
}

// ObjectChanged handles an event of an object that only queueing hints read. old is
// nil if the object was added, object is nil if it was deleted.
func (l *Loop) ObjectChanged(resource framework.Resource, old, object any) {
	action := framework.Update
	switch {
	case old == nil:
		action = framework.Add
	case object == nil:
		action = framework.Delete
	}
	l.handleClusterEvent(framework.Occurrence{Event: framework.Event{Resource: resource, Action: action}, OldObject: old, Object: object})
}

func (l *Loop) handleClusterEvent(o framework.Occurrence) {
	begin := time.Now()
	l.Queue.MoveAllToActiveOrBackoff(l.now(), &o)
	l.metrics.eventHandled(o.Event, time.Since(begin))
}

// SetPod adds or updates a pod whose phase is not Succeeded or Failed. The API
// server's state overrides decisions of the scheduler.
func (l *Loop) SetPod(pod *nodetable.Pod) {
	if pod.Node != (nodetable.Symbol{}) {
		l.setAssignedPod(pod)
		return
	}
	switch p := l.assumed[pod.UID]; {
	case p != nil && p.bound: // the event is older than the binding
	case p != nil:
		l.updatePendingPod(pod)
	case !l.ResponsibleFor(pod) || pod.Terminating:
		l.removePendingPod(pod)
	default:
		l.updatePendingPod(pod)
	}
}

func (l *Loop) setAssignedPod(pod *nodetable.Pod) {
	node := pod.Node.Value()
	l.updateAssumedPod(pod.UID, func(p *assumedPod) { p.node = node })
	l.removeFromQueue(pod.UID)
	if pod.Terminating {
		if !deletedImmediately(pod.Object) {
			defer l.victimDeletionObserved(pod.UID)
		}
	} else if d, deleted := l.deletedVictims[pod.UID]; deleted { // the event is older than the deletion
		pod = TerminatingPod(pod, d.deadline, v1.PodReasonPreemptionByScheduler)
	}
	old, _ := l.Table.Find(pod.UID)
	l.Table.PlaceOn(pod, pod.Node)
	o := framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add}, OldPod: nil, Pod: pod}
	if old == nil || old.Node == (nodetable.Symbol{}) {
		l.handleClusterEvent(o)
		return
	}
	for changed := framework.PodEvents(old, pod); changed != 0; changed &= changed - 1 {
		updated := o
		updated.Action, updated.OldPod = changed&-changed, old
		l.handleClusterEvent(updated)
	}
}

// updateAssumedPod records what an informer reports of an assumed pod, and cancels
// the binding cycle if that contradicts it.
func (l *Loop) updateAssumedPod(uid types.UID, update func(*assumedPod)) {
	p := l.assumed[uid]
	if p == nil {
		return
	}
	if update(p); p.bound {
		delete(l.assumed, uid)
	} else if p.deleted || p.node != p.Node {
		p.cancel()
	}
}

// removeFromQueue removes a pod from the queue, the nominations and the waiting
// pods.
func (l *Loop) removeFromQueue(uid types.UID) {
	l.Remove(uid)
	l.Reject(uid, framework.Status{Code: framework.Unschedulable, Reason: "the pod is gone"}) // not reported: the queue does not have the pod
	delete(l.unconfirmedNominations, uid)
}

// updatePendingPod adds or updates a pod that this scheduler is responsible for.
func (l *Loop) updatePendingPod(pod *nodetable.Pod) {
	now := l.now()
	if u := l.unconfirmedNominations[pod.UID]; u != nil {
		if pod.Object.Status.NominatedNodeName == u.node || u.precedes(pod) {
			delete(l.unconfirmedNominations, pod.UID)
		} else {
			u.masked = pod
			pod = UpdatedPod(pod, func(object *v1.Pod) { object.Status.NominatedNodeName = u.node })
		}
	}
	e := l.Queue.Get(pod.UID)
	if e == nil {
		l.AddPod(now, pod)
		l.AddNominatedPod(now, pod)
		return
	}
	old, oldNode := e.Pod, l.Nominator.Node(pod.UID)
	l.Queue.Update(now, pod, framework.PodEvents(old, pod))
	if l.assumed[pod.UID] != nil || l.IsWaiting(pod.UID) {
		return // assumed pods have no nomination
	}
	l.Nominator.Update(old, pod)
	if node := l.Nominator.Node(pod.UID); node != oldNode {
		l.setNominationDeadline(now, pod.UID, node, nil)
		if oldNode != "" {
			l.PodLeft(now, old, nodetable.Intern(oldNode))
		}
	}
}

// unconfirmedNomination is a nomination that no informer has reported. What informers
// report of the pod is older until its resourceVersion is that of the patch; then
// another client has written status.nominatedNodeName.
type unconfirmedNomination struct {
	node    string
	version uint64         // of the pod after the patch; 0: not known yet
	masked  *nodetable.Pod // reported last, with another node; nil: none
}

func (u *unconfirmedNomination) precedes(pod *nodetable.Pod) bool {
	version, err := strconv.ParseUint(pod.Object.ResourceVersion, 10, 64)
	return err == nil && u.version != 0 && version >= u.version
}

// nominationWritten records the end of the patch. If nothing was written, what an
// informer has reported holds.
func (l *Loop) nominationWritten(uid types.UID, u *unconfirmedNomination, version string) {
	if l.unconfirmedNominations[uid] != u {
		return
	}
	u.version, _ = strconv.ParseUint(version, 10, 64)
	reported := u.masked
	if u.version != 0 && (reported == nil || !u.precedes(reported)) {
		return
	}
	delete(l.unconfirmedNominations, uid)
	if reported != nil && l.Queue.Get(uid) != nil {
		l.updatePendingPod(reported)
	}
}

// removePendingPod removes a pod without a node that this scheduler is not, or no
// longer, responsible for. The nomination of another scheduler is kept.
func (l *Loop) removePendingPod(pod *nodetable.Pod) {
	node := ""
	if !l.ResponsibleFor(pod) && !pod.Terminating {
		node = pod.Object.Status.NominatedNodeName
	}
	oldNode := l.Nominator.Node(pod.UID)
	l.removeFromQueue(pod.UID)
	l.Nominator.Nominate(pod, node)
	if oldNode != "" && oldNode != node {
		l.PodLeft(l.now(), pod, nodetable.Intern(oldNode))
	}
}

// RemovePod removes a pod that is deleted or whose phase is Succeeded or Failed;
// pod is its last known state. An assumed pod keeps its node until its binding cycle
// has ended.
func (l *Loop) RemovePod(pod *nodetable.Pod) {
	uid := pod.UID
	p := l.assumed[uid]
	l.updateAssumedPod(uid, func(p *assumedPod) { p.deleted = true })
	left := nodetable.Intern(l.Nominator.Node(uid))
	waited := l.IsWaiting(uid)
	l.removeFromQueue(uid)
	defer l.victimDeletionObserved(uid)
	if p != nil && !p.bound || waited {
		return // the end of the binding cycle, or Reject, forgets the pod
	}
	if old, row := l.Table.Find(uid); old != nil {
		left = l.Table.Node(row).Name
	}
	l.Table.Displace(uid)
	if left != nodetable.Intern("") {
		l.PodLeft(l.now(), pod, left)
	}
}
