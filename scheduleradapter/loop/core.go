package loop

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// Outcome of an attempt, as the output of a simulation names it.
type Outcome string

// What may become of an attempt. A gated pod has not been tried at all.
const (
	Scheduled     Outcome = "scheduled"
	Unschedulable Outcome = "unschedulable"
	Nominated     Outcome = "nominated"
	Gated         Outcome = "gated"
	Waiting       Outcome = "waiting"
	Failed        Outcome = "error"
)

// Attempt to find a node for a pod.
type Attempt struct {
	*queue.Entry
	// Pod is the version that was tried, Number the attempt's, from 1; 0 where the
	// pod was not tried.
	Pod    *nodetable.Pod
	Number int
	Outcome
	// Node the pod has, or waits for.
	Node string
	// Cycle is how the nodes did, nil where none was looked at; good until the next
	// attempt.
	Cycle     *framework.Cycle
	Nominated string
	Victims   []*nodetable.Pod
	Message   string
	// Binding is to be run where the pod was scheduled.
	Binding cycle.Binding
}

// Outside carries out what was decided. It is called on the goroutine that owns
// the Core.
type Outside interface {
	// Attempted is told of an attempt after which the pod has no node, or waits for
	// permission, before the pod is back in the queue.
	Attempted(a *Attempt)
	// Promised is told of a node that was promised to a pod, empty where the
	// promise is taken back.
	Promised(pod *nodetable.Pod, node string)
	// Preempt makes the victims of an attempt go. One that waits for permission is
	// to be denied it.
	Preempt(a *Attempt)
}

// Parts are what a Core is made of.
type Parts struct {
	Table *nodetable.Table
	// Profiles makes the scheduler's profiles, at least one, of distinct names.
	Profiles func(framework.Env) ([]cycle.Profile, error)
	// Env is what plugins get; the table is added.
	Env framework.Env
	// InitialBackoff doubles with every failed attempt of a pod up to MaxBackoff.
	InitialBackoff, MaxBackoff time.Duration
	// Moved is told of every pod that changes its place in the queue; nil for nobody.
	Moved func(e *queue.Entry, from queue.Place, why framework.Event)
}

// Core is a scheduler with its table, queue and promises, and what has to happen to them
// after an attempt. It has no clock and starts nothing: a simulation and the live
// loop drive it alike, each from one goroutine.
type Core struct {
	Table     *nodetable.Table
	Queue     *queue.Queue
	Promises  *queue.Nominator
	Scheduler *cycle.Scheduler
	outside   Outside
	waiting   map[types.UID]*queue.Entry // for permission
}

// NewCore makes a core whose time begins at an instant. The error is about
// profiles that cannot be made.
func NewCore(start time.Time, parts Parts, outside Outside) (*Core, error) {
	c := &Core{Table: parts.Table, Promises: queue.NewNominator(), outside: outside, waiting: map[types.UID]*queue.Entry{}}
	parts.Env.Table = parts.Table
	profiles, err := parts.Profiles(parts.Env)
	if err != nil {
		return nil, err
	}
	c.Scheduler = cycle.New(c.Table, profiles, c.Promises, parts.Env.Random)
	cfg := queue.Config{
		Less: profiles[0].Less, Profiles: map[string]queue.Profile{}, InitialBackoff: parts.InitialBackoff, MaxBackoff: parts.MaxBackoff, Moved: parts.Moved,
	}
	for _, p := range profiles {
		cfg.Profiles[p.Profile()] = p
	}
	c.Queue = queue.New(start, cfg)
	return c, nil
}

// Ours says whether a pod asks for one of the profiles.
func (c *Core) Ours(pod *nodetable.Pod) bool {
	_, ours := c.Scheduler.Profile(pod)
	return ours
}

// Attempt looks for a node for a pod that was popped. Where the pod is scheduled
// its binding is to be run, and told to Bound or Unbound; anything else is dealt
// with.
func (c *Core) Attempt(now time.Time, e *queue.Entry) *Attempt {
	a := &Attempt{Entry: e, Pod: e.Pod, Number: e.Attempts}
	r := c.Scheduler.Attempt(e.Pod, now)
	a.Cycle, a.Message = r.Cycle, r.Message
	switch {
	case r.Status.OK():
		c.permit(a, r.Binding)
	case r.Status.Code == framework.Wait:
		a.Outcome, a.Node = Waiting, r.Binding.Node.Name.Value()
		c.waiting[a.Pod.UID] = e
		c.outside.Attempted(a)
	default:
		c.fail(now, a, r)
	}
	return a
}

func (c *Core) permit(a *Attempt, b cycle.Binding) {
	a.Outcome, a.Node, a.Binding = Scheduled, b.Node.Name.Value(), b
	c.Queue.Permit(a.Entry)
}

// Bound lets go of a pod that has its node.
func (c *Core) Bound(uid types.UID) {
	c.Queue.Delete(uid)
	c.Promises.Clear(uid)
}

// Unbound sends a pod back whose binding failed, and frees its node.
func (c *Core) Unbound(now time.Time, a *Attempt, status framework.Status) {
	c.Scheduler.Forget(a.Binding)
	a.Message = status.Message()
	c.fail(now, a, cycle.Refused(status))
	c.left(now, a.Pod)
}

// left tells the queue that a pod counts on no node any more.
func (c *Core) left(now time.Time, pod *nodetable.Pod) {
	c.Queue.Move(now, &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, OldPod: pod})
}

// fail sends a pod back into the queue, with a promise where victims make room
// for it.
func (c *Core) fail(now time.Time, a *Attempt, r cycle.Result) {
	a.Node, a.Outcome = "", Unschedulable
	if r.Status.Code == framework.Error {
		a.Outcome = Failed
	}
	if r.Nomination.Node != nil {
		a.Outcome, a.Nominated, a.Victims = Nominated, r.Nomination.Node.Name.Value(), r.Nomination.Victims
	}
	c.outside.Attempted(a)
	c.Queue.Fail(now, a.Entry, queue.Rejection{Unschedulable: r.Rejectors, Pending: r.Pending})
	if r.Nomination.Decided {
		c.nominate(now, a.Pod, a.Nominated)
	}
	if len(a.Victims) > 0 {
		c.outside.Preempt(a)
	}
}

// nominate promises a node to a pod, or none. Those that matter less lose theirs
// to it.
func (c *Core) nominate(now time.Time, pod *nodetable.Pod, node string) {
	var outranked []*nodetable.Pod
	if node != "" {
		for other := range c.Promises.On(nodetable.Intern(node)) {
			if other.Priority < pod.Priority {
				outranked = append(outranked, other)
			}
		}
	}
	for _, other := range outranked {
		c.promise(now, other, "")
	}
	c.promise(now, pod, node)
}

func (c *Core) promise(now time.Time, pod *nodetable.Pod, node string) {
	if pod.Object.Status.NominatedNodeName != node {
		pod = Changed(pod, func(object *v1.Pod) { object.Status.NominatedNodeName = node })
		if c.Queue.Get(pod.UID) != nil {
			c.Queue.Update(now, pod, 0)
		}
		c.outside.Promised(pod, node)
	}
	c.Promises.Nominate(pod, node)
}

// Waits says whether a pod waits for permission.
func (c *Core) Waits(uid types.UID) bool { return c.waiting[uid] != nil }

// Waiting is how many pods wait for permission.
func (c *Core) Waiting() int { return len(c.waiting) }

// Allow is a plugin's permission for a pod that waits. The last one returns the
// attempt, whose binding is to be run; otherwise it is nil.
func (c *Core) Allow(uid types.UID, plugin string) *Attempt {
	b, permitted := c.Scheduler.Allow(uid, plugin)
	if !permitted {
		return nil
	}
	e := c.waiting[uid]
	delete(c.waiting, uid)
	a := &Attempt{Entry: e, Pod: b.Pod, Number: e.Attempts}
	c.permit(a, b)
	return a
}

// Deny ends a pod's wait for permission, and frees its node; of a pod that does
// not wait nothing becomes.
func (c *Core) Deny(now time.Time, uid types.UID, status framework.Status) {
	r, waited := c.Scheduler.Reject(uid, status)
	if !waited {
		return
	}
	e := c.waiting[uid]
	delete(c.waiting, uid)
	c.fail(now, &Attempt{Entry: e, Pod: e.Pod, Number: e.Attempts, Message: r.Message}, r)
	c.left(now, e.Pod)
}

// Expire denies the pods that have waited as long as they may.
func (c *Core) Expire(now time.Time) {
	for {
		at, uid, plugin, any := c.Scheduler.Deadline()
		if !any || at.After(now) {
			return
		}
		c.Deny(now, uid, framework.Status{Code: framework.Unschedulable, Plugin: plugin, Reason: "timeout"})
	}
}

// Deadline is when Expire has something to do; false where never.
func (c *Core) Deadline() (time.Time, bool) {
	at, _, _, any := c.Scheduler.Deadline()
	return at, any
}

// Changed is the digest of a pod whose object is changed in what no digest holds.
func Changed(pod *nodetable.Pod, change func(*v1.Pod)) *nodetable.Pod {
	digest, object := *pod, *pod.Object
	object.Status.Conditions = slices.Clone(object.Status.Conditions)
	change(&object)
	digest.Object = &object
	return &digest
}

// Leaving is the digest of a pod that is being deleted, until an instant, for a
// reason that its condition DisruptionTarget gives.
func Leaving(pod *nodetable.Pod, gone time.Time, reason string) *nodetable.Pod {
	pod = Changed(pod, func(object *v1.Pod) {
		object.DeletionTimestamp = &metav1.Time{Time: gone}
		object.Status.Conditions = append(object.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: reason})
	})
	pod.Terminating = true
	return pod
}
