package cycle

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// A pod is in a preemption loop if it preempts on one node maxPreemptions times
// within preemptionWindow and other pods use the freed resources each time. It then
// does not preempt on that node for firstPause, which doubles up to lastPause.
const (
	maxPreemptions   = 3
	preemptionWindow = 10 * time.Minute
	firstPause       = time.Minute
	lastPause        = 32 * time.Minute
)

// pastPreemption is a preemption after which the preemptor was not scheduled.
type pastPreemption struct {
	pod     types.UID
	node    string
	at      time.Time // plus the pauses since then
	victims []types.UID
}

// preemptionPause forbids the pods of an owner to preempt on a node.
type preemptionPause struct {
	owner types.UID
	node  string
	until time.Time
}

// preemptionLoops keeps recent preemptions by owner: the controller of a pod that
// is deleted may create a new preemptor.
type preemptionLoops struct {
	preemptions map[types.UID][]pastPreemption
	pauses      []preemptionPause
	swept       time.Time
}

// ownerOf is the uid of a pod's controller, or of the pod.
func ownerOf(pod *nodetable.Pod) types.UID {
	if controller := metav1.GetControllerOf(pod.Object); controller != nil {
		return controller.UID
	}
	return pod.UID
}

// recordPreemption records a preemption, and pauses preemption on the node if it is
// part of a loop.
func (s *Scheduler) recordPreemption(now time.Time, a *Attempt) {
	l := &s.preemptionLoops
	l.sweep(now)
	owner, futile := ownerOf(a.Pod), 0
	past := slices.DeleteFunc(l.preemptions[owner], func(p pastPreemption) bool { return now.Sub(p.at) > preemptionWindow })
	for _, p := range past {
		if p.node == a.Nominated && s.isFutile(p, a) {
			futile++
		}
	}
	latest := pastPreemption{pod: a.Pod.UID, node: a.Nominated, at: now}
	for _, v := range a.Victims {
		latest.victims = append(latest.victims, v.UID)
	}
	l.preemptions[owner] = append(past, latest)
	if futile+1 < maxPreemptions {
		return
	}
	length := min(firstPause<<(futile+1-maxPreemptions), lastPause)
	for i := range l.preemptions[owner] {
		l.preemptions[owner][i].at = l.preemptions[owner][i].at.Add(length)
	}
	l.pauses = append(l.pauses, preemptionPause{owner, a.Nominated, now.Add(length)})
	s.callbacks.Warn(a.Pod, Warning{ReasonPreemptionLoop, fmt.Sprintf(
		"Preempted %d times on node %s, and other pods used the resources; preemption on this node pauses for %s", futile+1, a.Nominated, length)})
}

// isFutile reports whether other pods used the resources that an earlier preemption
// freed: its preemptor is not nominated any more, and the new victims differ.
func (s *Scheduler) isFutile(p pastPreemption, a *Attempt) bool {
	if p.pod != a.Pod.UID && s.Nominator.Node(p.pod) == p.node {
		return false // its victims still terminate
	}
	return slices.ContainsFunc(a.Victims, func(v *nodetable.Pod) bool { return !slices.Contains(p.victims, v.UID) })
}

// forget removes the preemptions of a pod that has a node.
func (l *preemptionLoops) forget(pod *nodetable.Pod, node string) {
	if len(l.preemptions) == 0 {
		return
	}
	owner := ownerOf(pod)
	left := slices.DeleteFunc(l.preemptions[owner], func(p pastPreemption) bool { return p.pod == pod.UID || p.node == node })
	if len(left) == 0 {
		delete(l.preemptions, owner)
	} else {
		l.preemptions[owner] = left
	}
	l.pauses = slices.DeleteFunc(l.pauses, func(p preemptionPause) bool { return p.owner == owner && p.node == node })
}

// sweep removes owners without a recent preemption, once per preemptionWindow.
func (l *preemptionLoops) sweep(now time.Time) {
	if now.Sub(l.swept) < preemptionWindow {
		return
	}
	l.swept = now
	for owner, past := range l.preemptions {
		if !slices.ContainsFunc(past, func(p pastPreemption) bool { return now.Sub(p.at) <= preemptionWindow }) {
			delete(l.preemptions, owner)
		}
	}
}

func (l *preemptionLoops) pausedNodes(pod *nodetable.Pod) (nodes []nodetable.Symbol) {
	if len(l.pauses) == 0 {
		return nil
	}
	owner := ownerOf(pod)
	for _, p := range l.pauses {
		if p.owner == owner {
			nodes = append(nodes, nodetable.Intern(p.node))
		}
	}
	return nodes
}

// endPauses activates the pods whose pauses are over.
func (s *Scheduler) endPauses(now time.Time) {
	var owners []types.UID
	s.preemptionLoops.pauses = slices.DeleteFunc(s.preemptionLoops.pauses, func(p preemptionPause) bool {
		if p.until.After(now) {
			return false
		}
		owners = append(owners, p.owner)
		return true
	})
	if len(owners) == 0 {
		return
	}
	for _, e := range s.Queue.Entries() {
		if slices.Contains(owners, ownerOf(e.Pod)) && s.Nominator.Node(e.Pod.UID) == "" {
			s.Queue.Activate(now, e.Pod.UID)
		}
	}
}
