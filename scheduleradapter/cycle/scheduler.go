package cycle

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// Profile schedules the pods of one scheduler name.
type Profile struct {
	*framework.Runner
	// NumFeasibleNodesToFind returns how many feasible nodes suffice for a number of
	// candidate nodes.
	NumFeasibleNodesToFind func(nodes int) int
}

// Callbacks carry out decisions. They run on the goroutine that owns the Scheduler.
type Callbacks interface {
	// AttemptEnded reports an attempt that assigned no node, or that waits for
	// Permit, before the pod returns to the queue.
	AttemptEnded(a *Attempt)
	// Nominated reports the node that is nominated for a pod; empty: the nomination
	// is cleared.
	Nominated(pod *nodetable.Pod, node string)
	// Preempt deletes the victims of an attempt. A victim that waits for Permit is
	// rejected instead.
	Preempt(a *Attempt)
	// PodGroupEnded reports an attempt to schedule a pod group, before it returns to the
	// queue.
	PodGroupEnded(r *PodGroupResult)
	// Warn reports a preemption that did not free a node for the pod.
	Warn(pod *nodetable.Pod, w Warning)
}

// Config of a Scheduler.
type Config struct {
	Table *nodetable.Table
	// Profiles makes at least one profile; their names are distinct.
	Profiles func(framework.Env) ([]Profile, error)
	// Env is passed to the plugins, with Table and PausedNodes added.
	Env framework.Env
	// PodGroups: the pods of a PodGroup are scheduled together, as with the gate
	// GenericWorkload.
	PodGroups bool
	// KeepsCycles: the Cycle of each attempt has the result for each node, and attempts of
	// pods of a PodGroup have a copy for each pod. Otherwise a Cycle has them only if the
	// attempt found no node, or had to evaluate all nodes.
	KeepsCycles bool
	// WrapProfile wraps a profile for the queue; nil: no wrapper.
	WrapProfile func(queue.Profile) queue.Profile
	// InitialBackoff is the backoff after the first failed attempt. It doubles with
	// each further one, up to MaxBackoff.
	InitialBackoff, MaxBackoff time.Duration
	// Moved is called when a pod moves inside the queue; nil: not called.
	Moved func(e *queue.Entry, from queue.Place, why framework.Event)
}

// Scheduler runs scheduling cycles over a table, a queue and nominations. One
// goroutine owns it, except for the methods of Binding.
type Scheduler struct {
	Table     *nodetable.Table
	Queue     *queue.Queue
	Nominator *queue.Nominator
	// ClockOffset is the clock of API objects minus the clock of the Scheduler.
	ClockOffset time.Duration
	// Work is the context of all attempts; nil: it does not end.
	Work context.Context
	// Suspends: an attempt to schedule a pod does not block while an extender answers.
	Suspends bool

	callbacks Callbacks
	profiles  map[string]Profile
	podGroups bool
	// keepsCycles is Config.KeepsCycles.
	keepsCycles bool
	random      *numbers
	nextStart   int   // index in the table's order at which the next sample starts
	tops        []top // of selectHost
	// disrupted counts the victims of the running what-if by the uid of their budget.
	disrupted map[types.UID]int32
	cycle     *framework.Cycle
	scores    framework.ScoreCache
	attempts  int
	attempted nodetable.PodGroupKey // the pod group of the running attempt; zero: none
	waiting   map[types.UID]*waitingPod

	permitDeadlines     permitDeadlines
	permitDeadlineLimit int // length at which they are swept
	nominationDeadlines nominationDeadlines
	previousNominations map[types.UID]string // nominations of pods before they were assumed
	preemptionLoops     preemptionLoops
}

// New makes a scheduler whose time starts at an instant. The error is that of
// Config.Profiles.
func New(start time.Time, cfg Config, callbacks Callbacks) (*Scheduler, error) {
	s := &Scheduler{
		Table: cfg.Table, Nominator: queue.NewNominator(), callbacks: callbacks, profiles: map[string]Profile{}, random: &numbers{cfg.Env.Random}, cycle: &framework.Cycle{},
		waiting: map[types.UID]*waitingPod{}, nominationDeadlines: nominationDeadlines{latest: map[types.UID]uint64{}}, previousNominations: map[types.UID]string{},
		preemptionLoops: preemptionLoops{preemptions: map[types.UID][]pastPreemption{}, swept: start},
	}
	s.keepsCycles = cfg.KeepsCycles
	cfg.Env.Random, cfg.Env.DisruptionsAllowed = s.random, s.disruptionsAllowed(cfg.Env.DisruptionsAllowed)
	cfg.Env.Table, cfg.Env.PausedNodes, cfg.Env.Nominations = cfg.Table, s.preemptionLoops.pausedNodes, s.Nominator
	if s.podGroups = cfg.PodGroups; s.podGroups {
		cfg.Env.PodGroups = s
	}
	profiles, err := cfg.Profiles(cfg.Env)
	if err != nil {
		return nil, err
	}
	queued := queue.Config{
		Less: profiles[0].Less, Profiles: map[string]queue.Profile{}, InitialBackoff: cfg.InitialBackoff, MaxBackoff: cfg.MaxBackoff, Moved: cfg.Moved,
		PodGroups: cfg.PodGroups,
	}
	for _, p := range profiles {
		s.profiles[p.Profile()] = p
		queued.Profiles[p.Profile()] = p
		if cfg.WrapProfile != nil {
			queued.Profiles[p.Profile()] = cfg.WrapProfile(p)
		}
	}
	s.Queue = queue.New(start, queued)
	return s, nil
}

// ResponsibleFor reports whether a profile has the pod's spec.schedulerName.
func (s *Scheduler) ResponsibleFor(pod *nodetable.Pod) bool {
	_, found := s.profiles[pod.Object.Spec.SchedulerName]
	return found
}

// Remove removes a pod from the queue and clears its nomination: the pod is bound
// or deleted.
func (s *Scheduler) Remove(uid types.UID) {
	s.Queue.Delete(uid)
	s.Nominator.Clear(uid)
	delete(s.previousNominations, uid)
}

// Expire ends what is overdue: waits for Permit, nominations whose victims still
// run, pauses of preemption.
func (s *Scheduler) Expire(now time.Time) {
	for {
		at, uid, plugin, found := s.permitDeadline()
		if !found || at.After(now) {
			break
		}
		s.Reject(now, uid, framework.Status{Code: framework.Unschedulable, Plugin: plugin, Reason: "timeout"})
	}
	s.expireNominations(now)
	s.endPauses(now)
}

// Deadline is when Expire has work next; false: never.
func (s *Scheduler) Deadline() (time.Time, bool) {
	at, _, _, found := s.permitDeadline()
	earlier := func(end time.Time) {
		if !found || end.Before(at) {
			at, found = end, true
		}
	}
	if n, nominated := s.nominationDeadlines.first(s.isNominated); nominated {
		earlier(n.until)
	}
	for _, p := range s.preemptionLoops.pauses {
		earlier(p.until)
	}
	return at, found
}

// UpdatedPod is a copy of a pod whose object is changed. The change must not
// concern fields from which nodetable.Pod is computed.
func UpdatedPod(pod *nodetable.Pod, change func(*v1.Pod)) *nodetable.Pod {
	digest, object := *pod, *pod.OwnObject()
	object.Status.Conditions = slices.Clone(object.Status.Conditions)
	change(&object)
	digest.Object = &object
	return &digest
}

// TerminatingPod is a copy of a pod with a deletionTimestamp and the condition
// DisruptionTarget.
func TerminatingPod(pod *nodetable.Pod, deletion time.Time, reason string) *nodetable.Pod {
	pod = UpdatedPod(pod, func(object *v1.Pod) {
		object.DeletionTimestamp = &metav1.Time{Time: deletion}
		object.Status.Conditions = append(object.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: reason})
	})
	pod.Terminating = true
	return pod
}
