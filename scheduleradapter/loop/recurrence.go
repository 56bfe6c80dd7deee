package loop

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// A pod that preempts on the same node so many times within the window, while
// others take the room every time, is in a loop, and pauses there.
const (
	loopRounds = 3
	loopWindow = 10 * time.Minute
	firstPause = time.Minute
	lastPause  = 32 * time.Minute
)

// round is a preemption that has not brought its pod onto a node.
type round struct {
	pod     types.UID
	node    string
	at      time.Time // later by the pauses since
	victims []types.UID
}

// pause keeps the pods of an owner from preempting on a node.
type pause struct {
	owner types.UID
	node  string
	until time.Time
}

// recurrence remembers the preemptions of the last minutes by the preemptors'
// owners: a controller replaces a pod that gives up.
type recurrence struct {
	rounds map[types.UID][]round
	pauses []pause
	swept  time.Time
}

// owner is a pod's controller, or the pod itself.
func owner(pod *nodetable.Pod) types.UID {
	if by := metav1.GetControllerOf(pod.Object); by != nil {
		return by.UID
	}
	return pod.UID
}

// preempted takes up a preemption. Where it is one of a loop it is the last one
// there for a while.
func (c *Core) preempted(now time.Time, a *Attempt) {
	r := &c.recurrence
	r.sweep(now)
	who, vain := owner(a.Pod), 0
	past := slices.DeleteFunc(r.rounds[who], func(p round) bool { return now.Sub(p.at) > loopWindow })
	for _, p := range past {
		if p.node == a.Nominated && c.inVain(p, a) {
			vain++
		}
	}
	this := round{pod: a.Pod.UID, node: a.Nominated, at: now}
	for _, v := range a.Victims {
		this.victims = append(this.victims, v.UID)
	}
	r.rounds[who] = append(past, this)
	if vain+1 < loopRounds {
		return
	}
	length := min(firstPause<<(vain+1-loopRounds), lastPause)
	for i := range r.rounds[who] {
		r.rounds[who][i].at = r.rounds[who][i].at.Add(length)
	}
	r.pauses = append(r.pauses, pause{who, a.Nominated, now.Add(length)})
	c.outside.Warn(a.Pod, Warning{ReasonPreemptionLoop, fmt.Sprintf(
		"Preempted %d times on node %s, and others took the room; no more there for %s", vain+1, a.Nominated, length)})
}

// inVain says whether others took the room that an earlier round made: its pod is
// tried again or gone, and there are other victims than then.
func (c *Core) inVain(p round, a *Attempt) bool {
	if p.pod != a.Pod.UID && c.Promises.Node(p.pod) == p.node {
		return false // still waits for its victims
	}
	return slices.ContainsFunc(a.Victims, func(v *nodetable.Pod) bool { return !slices.Contains(p.victims, v.UID) })
}

// placed forgets the rounds of a pod that has a node.
func (r *recurrence) placed(pod *nodetable.Pod, node string) {
	if len(r.rounds) == 0 {
		return
	}
	who := owner(pod)
	left := slices.DeleteFunc(r.rounds[who], func(p round) bool { return p.pod == pod.UID || p.node == node })
	if len(left) == 0 {
		delete(r.rounds, who)
	} else {
		r.rounds[who] = left
	}
	r.pauses = slices.DeleteFunc(r.pauses, func(p pause) bool { return p.owner == who && p.node == node })
}

// sweep forgets, once a window, the owners that have preempted nobody lately.
func (r *recurrence) sweep(now time.Time) {
	if now.Sub(r.swept) < loopWindow {
		return
	}
	r.swept = now
	for who, rounds := range r.rounds {
		if !slices.ContainsFunc(rounds, func(p round) bool { return now.Sub(p.at) <= loopWindow }) {
			delete(r.rounds, who)
		}
	}
}

// paused are the nodes where a pod may not preempt now.
func (r *recurrence) paused(pod *nodetable.Pod) (nodes []nodetable.Symbol) {
	if len(r.pauses) == 0 {
		return nil
	}
	who := owner(pod)
	for _, p := range r.pauses {
		if p.owner == who {
			nodes = append(nodes, nodetable.Intern(p.node))
		}
	}
	return nodes
}

// endPauses lets the pods be tried again whose pauses are over.
func (c *Core) endPauses(now time.Time) {
	var over []types.UID
	c.recurrence.pauses = slices.DeleteFunc(c.recurrence.pauses, func(p pause) bool {
		if p.until.After(now) {
			return false
		}
		over = append(over, p.owner)
		return true
	})
	if len(over) == 0 {
		return
	}
	for _, e := range c.Queue.Entries() {
		if slices.Contains(over, owner(e.Pod)) && c.Promises.Node(e.Pod.UID) == "" {
			c.Queue.Activate(now, e.Pod.UID)
		}
	}
}
