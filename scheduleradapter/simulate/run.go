package simulate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/lifecycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/outoftree"
	"github.com/evictd/evictd/scheduleradapter/profile"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// Config of a Simulation.
type Config struct {
	// Assemble makes at least one profile, over the objects of the manifests.
	Assemble func(framework.Env, profile.Stores) ([]cycle.Profile, error)
	// Assembled receives the owner before a pod is queued; nil: not called.
	Assembled func(outoftree.Owner)
	// Attempting receives each pod, or pod group, before its attempt; nil: not called.
	Attempting func(*queue.Entry)
	// PodGroups: the pods of a PodGroup are scheduled together.
	PodGroups bool
	// InitialBackoff doubles with each failed attempt of a pod, up to MaxBackoff.
	InitialBackoff, MaxBackoff time.Duration
	// For is the simulated duration; nil: until no pod changes, except for the
	// periodic flush of unschedulable pods.
	For    *time.Duration
	Random framework.Random
}

// maxErrors is the number of errors after which a pod is removed.
const maxErrors = 5

// Simulation is a cluster whose time advances when nothing is left to do.
type Simulation struct {
	Config
	*cycle.Scheduler
	objects *Objects
	stores  profile.Stores
	report  Reporter
	summary Summary
	timers  timers
	start   time.Time
	now     time.Time
	errors  map[types.UID]int
	monitor *lifecycle.Monitor // nil: all nodes are ready
	// changes counts what may help a pod group. unchanged has the count at the last
	// attempt of each group that was not scheduled.
	changes   int
	unchanged map[types.UID]int

	calls     *cycle.Calls
	permitted []*cycle.Attempt
}

// New prepares a simulation; the objects must not be used again. The error joins
// the faults of the objects and of the configuration.
func New(objects *Objects, cfg Config, report Reporter) (*Simulation, error) {
	s := &Simulation{Config: cfg, objects: objects, report: report, start: newest(objects), errors: map[types.UID]int{}, unchanged: map[types.UID]int{}, calls: cycle.NewCalls()}
	s.now = s.start
	table := nodetable.New()
	s.stores = profile.NewSimulatedStores(table)
	scheduler, err := cycle.New(s.start, cycle.Config{
		Table:          table,
		Profiles:       func(env framework.Env) ([]cycle.Profile, error) { return cfg.Assemble(env, s.stores) },
		Env:            framework.Env{Binder: binder{}, DisruptionsAllowed: s.disruptionsAllowed, Random: cfg.Random},
		PodGroups:      cfg.PodGroups,
		KeepsCycles:    true,
		InitialBackoff: cfg.InitialBackoff,
		MaxBackoff:     cfg.MaxBackoff,
		Moved:          s.moved,
	}, s)
	if err != nil {
		return nil, err
	}
	s.Scheduler = scheduler
	if cfg.Assembled != nil {
		cfg.Assembled(outoftree.Owner{Do: s.calls.Add, Scheduler: s.Scheduler, Pods: &plugins{s}})
	}
	return s, s.populate()
}

// Run schedules the pending pods in simulated time and reports the decisions. The
// error is that of the context or of the Reporter.
func (s *Simulation) Run(ctx context.Context) error {
	for any := true; any; {
		s.runPending(ctx)
		for e := s.Queue.Pop(s.now); e != nil && ctx.Err() == nil; e = s.Queue.Pop(s.now) {
			s.attempt(ctx, e)
			s.runPending(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var next time.Time
		if next, any = s.next(); any {
			s.now = next
		}
	}
	return s.report.End(s.total())
}

// runPending runs due timers, posted functions and binding cycles.
func (s *Simulation) runPending(ctx context.Context) {
	for do := s.timers.due(s.now); do != nil; do = s.timers.due(s.now) {
		s.changes++
		do()
	}
	s.drain()
	for len(s.permitted) > 0 {
		a := s.permitted[0]
		s.permitted = s.permitted[1:]
		s.bind(ctx, a)
		s.drain()
	}
	s.Expire(s.now)
}

// next is the next instant at which something changes; false: never, or after
// Config.For.
func (s *Simulation) next() (next time.Time, any bool) {
	consider := func(at time.Time, is bool) {
		if is && (!any || at.Before(next)) {
			next, any = at, true
		}
	}
	if len(s.timers) > 0 {
		consider(s.timers[0].at, true)
	}
	consider(s.Deadline())
	if any || s.For != nil || s.mayChange() {
		consider(s.Queue.Next(s.now))
	}
	return next, any && (s.For == nil || next.Sub(s.start) <= *s.For)
}

// mayChange reports whether a pod is active or in backoff, apart from groups for which
// nothing has changed since their last attempt: kube-scheduler retries these for ever.
func (s *Simulation) mayChange() bool {
	for _, e := range s.Queue.Entries() {
		if e.Place() != queue.Active && e.Place() != queue.Backoff {
			continue
		}
		group := e.PodGroup()
		if group == nil {
			return true
		}
		if at, tried := s.unchanged[group.UID]; !tried || at != s.changes {
			return true
		}
	}
	return false
}

// PodGroupEnded reports the condition of a pod group.
func (s *Simulation) PodGroupEnded(r *cycle.PodGroupResult) {
	if r.Scheduled > 0 {
		s.changes++
	}
	s.unchanged[r.Group.UID] = s.changes
	if old := meta.FindStatusCondition(r.Group.Status.Conditions, r.Condition.Type); old == nil || old.Status != metav1.ConditionTrue {
		meta.SetStatusCondition(&r.Group.Status.Conditions, r.Condition)
		s.report.PodGroup(&PodGroup{At: s.now.Sub(s.start), PodGroupResult: *r})
	}
}

func (s *Simulation) attempt(ctx context.Context, e *queue.Entry) {
	if s.Attempting != nil {
		s.Attempting(e)
	}
	if e.IsPodGroup() {
		for _, a := range s.SchedulePodGroup(s.now, e) {
			s.bind(ctx, a)
		}
		return
	}
	if a := s.ScheduleOne(s.now, e); a.Outcome == cycle.Scheduled {
		s.bind(ctx, a)
	}
}

func (s *Simulation) bind(ctx context.Context, a *cycle.Attempt) {
	if status := s.await(func() framework.Status { return a.Binding.Run(ctx) }); !status.OK() {
		s.HandleBindingFailure(s.now, a, status)
		return
	}
	s.reportAttempt(a)
	s.summary.Scheduled++
	s.changes++
	s.Remove(a.Pod.UID)
	node := a.Binding.Node
	bound := running(a.Pod, a.Node, s.now)
	s.Table.Place(bound, s.Table.Row(node.Name))
	s.watch(bound, node, s.now)
	s.Queue.MoveAllToActiveOrBackoff(s.now, &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add}, Pod: bound})
}

func (s *Simulation) reportAttempt(a *cycle.Attempt) {
	s.report.Attempt(&Attempt{At: s.now.Sub(s.start), Attempt: *a})
}

// AttemptEnded reports an attempt, and removes a pod after maxErrors errors.
func (s *Simulation) AttemptEnded(a *cycle.Attempt) {
	s.reportAttempt(a)
	if a.Outcome != cycle.Failed && a.Place() != queue.Binding { // other outcomes are not counted
		return
	}
	if s.errors[a.Pod.UID]++; s.errors[a.Pod.UID] == maxErrors {
		s.Remove(a.Pod.UID)
		s.summary.Unschedulable++
	}
}

// Warn does nothing; warnings are not part of the report.
func (*Simulation) Warn(*nodetable.Pod, cycle.Warning) {}

// Nominated does nothing; there is no API server.
func (*Simulation) Nominated(*nodetable.Pod, string) {}

// moved reports gated pods.
func (s *Simulation) moved(e *queue.Entry, _ queue.Place, _ framework.Event) {
	if e.Place() == queue.Gated || e.Place() == queue.Ungrouped && !e.Gate.OK() {
		s.reportAttempt(&cycle.Attempt{Entry: e, Pod: e.Pod, Number: e.Attempts, Outcome: cycle.Gated, Message: e.Gate.Message()})
	}
}

// total completes the summary with the pending pods.
func (s *Simulation) total() Summary {
	s.summary.Gated = s.Queue.Depth(queue.Gated) + s.Queue.Depth(queue.Ungrouped)
	s.summary.Waiting = s.WaitingPodCount()
	for _, place := range []queue.Place{queue.Active, queue.Backoff, queue.Unschedulable} {
		s.summary.Unschedulable += s.Queue.Depth(place)
	}
	return s.summary
}

// binder is an API server that accepts all Bindings.
type binder struct{}

func (binder) Bind(context.Context, *nodetable.Pod, *nodetable.Node) error { return nil }
