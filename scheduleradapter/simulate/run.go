package simulate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/outoftree"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// Config is how a simulation runs.
type Config struct {
	// Assemble makes the scheduler's profiles, at least one, over the storage that
	// the manifests describe.
	Assemble func(framework.Env, *volumes.Storage) ([]cycle.Profile, error)
	// Assembled is told of the goroutine that owns the cluster, before any pod is
	// queued; nil for nobody.
	Assembled func(outoftree.Owner)
	// InitialBackoff doubles with every failed attempt of a pod up to MaxBackoff.
	InitialBackoff, MaxBackoff time.Duration
	// For is how long to run; nil until nothing is left that time could change,
	// but for the periodic retry of unschedulable pods.
	For    *time.Duration
	Random framework.Random
}

// maxErrors is after how many attempts that ended in an error, or failed to bind, a
// pod is given up.
const maxErrors = 5

// Simulation is a cluster in which time passes when nothing is left to do.
type Simulation struct {
	Config
	*cycle.Scheduler
	objects *Objects
	storage *volumes.Storage
	report  Reporter
	summary Summary
	timers  timers
	start   time.Time
	now     time.Time
	errors  map[types.UID]int

	inbox     *inbox
	permitted []*cycle.Attempt
}

// New prepares a cluster, whose objects are not to be used again. The error joins
// what is wrong with them and with the configuration.
func New(objects *Objects, cfg Config, report Reporter) (*Simulation, error) {
	s := &Simulation{Config: cfg, objects: objects, report: report, start: newest(objects), errors: map[types.UID]int{}, inbox: newInbox()}
	s.now = s.start
	table := nodetable.New()
	s.storage = volumes.NewSimulatedStorage(table)
	scheduler, err := cycle.New(s.start, cycle.Config{
		Table:          table,
		Profiles:       func(env framework.Env) ([]cycle.Profile, error) { return cfg.Assemble(env, s.storage) },
		Env:            framework.Env{Binder: binder{}, Budgets: s.budgets, Random: cfg.Random},
		InitialBackoff: cfg.InitialBackoff,
		MaxBackoff:     cfg.MaxBackoff,
		Moved:          s.moved,
	}, s)
	if err != nil {
		return nil, err
	}
	s.Scheduler = scheduler
	if cfg.Assembled != nil {
		cfg.Assembled(outoftree.Owner{Do: s.inbox.add, Scheduler: s.Scheduler, Pods: &plugins{s}})
	}
	return s, s.populate()
}

// Run schedules the pods that have no node, in simulated time, and reports what
// happens. It ends early with the context's error.
func (s *Simulation) Run(ctx context.Context) error {
	for any := true; any; {
		s.settle(ctx)
		for e := s.Queue.Pop(s.now); e != nil && ctx.Err() == nil; e = s.Queue.Pop(s.now) {
			s.attempt(ctx, e)
			s.settle(ctx)
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

// settle does what time has brought, and what plugins have asked for.
func (s *Simulation) settle(ctx context.Context) {
	for do := s.timers.due(s.now); do != nil; do = s.timers.due(s.now) {
		do()
	}
	s.inbox.drain()
	for len(s.permitted) > 0 {
		a := s.permitted[0]
		s.permitted = s.permitted[1:]
		s.bind(ctx, a)
		s.inbox.drain()
	}
	s.Expire(s.now)
}

// next is the instant at which something may change; false where nothing will
// within Config.For, or nothing that counts without it.
func (s *Simulation) next() (next time.Time, any bool) {
	consider := func(at time.Time, is bool) {
		if is && (!any || at.Before(next)) {
			next, any = at, true
		}
	}
	if s.timers.Len() > 0 {
		consider(s.timers.list[0].at, true)
	}
	consider(s.Deadline())
	if any || s.For != nil || s.Queue.Depth(queue.Active)+s.Queue.Depth(queue.Backoff) > 0 {
		consider(s.Queue.Next(s.now))
	}
	return next, any && (s.For == nil || next.Sub(s.start) <= *s.For)
}

// attempt looks for a node for a pod.
func (s *Simulation) attempt(ctx context.Context, e *queue.Entry) {
	if a := s.ScheduleOne(s.now, e); a.Outcome == cycle.Scheduled {
		s.bind(ctx, a)
	}
}

// bind ends a pod's way through the scheduler, unless binding fails.
func (s *Simulation) bind(ctx context.Context, a *cycle.Attempt) {
	if status := s.inbox.await(func() framework.Status { return a.Binding.Run(ctx) }); !status.OK() {
		s.HandleBindingFailure(s.now, a, status)
		return
	}
	s.tell(a)
	s.summary.Scheduled++
	s.Remove(a.Pod.UID)
	node := a.Binding.Node
	bound := running(a.Pod, a.Node, s.now)
	s.Table.Place(bound, s.Table.Row(node.Name))
	s.watch(bound, node, s.now)
	s.Queue.MoveAllToActiveOrBackoff(s.now, &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add}, Pod: bound})
}

func (s *Simulation) tell(a *cycle.Attempt) {
	s.report.Attempt(&Attempt{At: s.now.Sub(s.start), Attempt: *a})
}

// AttemptEnded reports an attempt, and removes a pod after maxErrors errors.
func (s *Simulation) AttemptEnded(a *cycle.Attempt) {
	s.tell(a)
	if a.Outcome != cycle.Failed && a.Place() != queue.Binding { // those are tried again whatever happens
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

// moved tells of a pod that a gate holds back.
func (s *Simulation) moved(e *queue.Entry, _ queue.Place, _ framework.Event) {
	if e.Place() == queue.Gated {
		s.tell(&cycle.Attempt{Entry: e, Pod: e.Pod, Number: e.Attempts, Outcome: cycle.Gated, Message: e.Gate.Message()})
	}
}

// total completes the summary with where the pods are that have no node.
func (s *Simulation) total() Summary {
	s.summary.Gated = s.Queue.Depth(queue.Gated)
	s.summary.Waiting = s.WaitingPodCount()
	for _, place := range []queue.Place{queue.Active, queue.Backoff, queue.Unschedulable} {
		s.summary.Unschedulable += s.Queue.Depth(place)
	}
	return s.summary
}

// binder is the API server: nobody can refuse a pod its node here.
type binder struct{}

func (binder) Bind(context.Context, *nodetable.Pod, *nodetable.Node) error { return nil }
