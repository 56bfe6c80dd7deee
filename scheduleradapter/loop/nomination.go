package loop

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/preempt"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// Warning is what an operator should know of a pod that preempts in vain.
type Warning struct {
	// Reason is ReasonNominationExpired or ReasonPreemptionLoop.
	Reason, Note string
}

// Reasons of warnings.
const (
	ReasonNominationExpired = "NominationExpired"
	ReasonPreemptionLoop    = "PreemptionLoop"
)

// nomination is a node that was promised to a pod for which others are to go, by
// an instant.
type nomination struct {
	pod   types.UID
	node  string
	until time.Time
}

// nominations are in the order of their ends.
type nominations []nomination

func (n *nominations) add(one nomination) {
	at, _ := slices.BinarySearchFunc(*n, one.until, func(other nomination, until time.Time) int { return other.until.Compare(until) })
	*n = slices.Insert(*n, at, one)
}

// awaitVictims bounds how long a promise holds while those that are to go for it
// stay: the longest grace of the victims, as far as they are known, and Patience.
func (c *Core) awaitVictims(now time.Time, pod types.UID, node string, victims []*nodetable.Pod) {
	last := now
	for _, v := range victims {
		if due := c.due(v, now); due.After(last) {
			last = due
		}
	}
	c.nominations = slices.DeleteFunc(c.nominations, func(n nomination) bool { return n.pod == pod || !c.holds(n) })
	if node != "" {
		c.nominations.add(nomination{pod, node, last.Add(preempt.Patience)})
	}
}

// Adopt takes over the promise that the status of a pod names, if any.
func (c *Core) Adopt(now time.Time, pod *nodetable.Pod) {
	c.Promises.Nominate(pod, pod.Object.Status.NominatedNodeName)
	if c.Ours(pod) {
		c.awaitVictims(now, pod.UID, pod.Object.Status.NominatedNodeName, nil)
	}
}

// holds says whether a promise is still the pod's.
func (c *Core) holds(n nomination) bool { return c.Promises.Node(n.pod) == n.node }

// expireNominations takes back the promises whose victims do not go. The pods are
// tried anew: preemption does not count on who is overdue.
func (c *Core) expireNominations(now time.Time) {
	for len(c.nominations) > 0 && !c.nominations[0].until.After(now) {
		n := c.nominations[0]
		c.nominations = slices.Delete(c.nominations, 0, 1)
		e := c.Queue.Get(n.pod)
		if e == nil || !c.holds(n) {
			continue
		}
		late, last := c.leavers(n.node, e.Pod.Priority, now)
		switch {
		case late != nil:
			c.giveUp(now, e, n.node, late)
		case last.After(now.Add(-preempt.Patience)):
			n.until = last.Add(preempt.Patience)
			c.nominations.add(n)
		}
	}
}

// wall is the instant by the clock of objects.
func (c *Core) wall(now time.Time) time.Time { return now.Add(c.Scheduler.Ahead) }

// due is when a pod is to be gone, by the clock of the Core.
func (c *Core) due(pod *nodetable.Pod, now time.Time) time.Time {
	return preempt.Due(pod, c.wall(now)).Add(-c.Scheduler.Ahead)
}

// leavers looks at the pods below a priority that are to leave a node: one that is
// overdue, and when the last is to be gone; zero where nobody leaves.
func (c *Core) leavers(node string, priority int32, now time.Time) (late *nodetable.Pod, last time.Time) {
	row := c.Table.Row(nodetable.Intern(node))
	if row == nodetable.NoRow {
		return nil, last
	}
	for _, pod := range c.Table.PodsOn(row) {
		if pod.Priority >= priority || !pod.Terminating {
			continue
		}
		if due := c.due(pod, now); due.After(last) {
			last = due
		}
		if preempt.Overdue(pod, c.wall(now)) {
			late = pod
		}
	}
	return late, last
}

func (c *Core) giveUp(now time.Time, e *queue.Entry, node string, late *nodetable.Pod) {
	c.outside.Warn(e.Pod, Warning{ReasonNominationExpired, fmt.Sprintf(
		"Pod %s was to leave node %s by %s and is still there; the room is looked for elsewhere", late, node, preempt.Due(late, c.wall(now)).UTC().Format(time.RFC3339))})
	c.promise(now, e.Pod, "")
	c.left(now, e.Pod)
	c.Queue.Activate(now, e.Pod.UID)
}
