package simulate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/loop"
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
	*loop.Core
	objects *Objects
	storage *volumes.Storage
	report  Reporter
	summary Summary
	timers  timers
	start   time.Time
	now     time.Time
	errors  map[types.UID]int

	inbox     *inbox
	permitted []*loop.Attempt
}

// New prepares a cluster, whose objects are not to be used again. The error joins
// what is wrong with them and with the configuration.
func New(objects *Objects, cfg Config, report Reporter) (*Simulation, error) {
	s := &Simulation{Config: cfg, objects: objects, report: report, start: newest(objects), errors: map[types.UID]int{}, inbox: newInbox()}
	s.now = s.start
	table := nodetable.New()
	s.storage = volumes.NewSimulatedStorage(table)
	core, err := loop.NewCore(s.start, loop.Parts{
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
	s.Core = core
	if cfg.Assembled != nil {
		cfg.Assembled(outoftree.Owner{Do: s.inbox.add, Scheduler: s.Scheduler, Nominations: s.Promises, Loop: &plugins{s}})
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
	if a := s.Attempt(s.now, e); a.Outcome == loop.Scheduled {
		s.bind(ctx, a)
	}
}

// bind ends a pod's way through the scheduler, unless binding fails.
func (s *Simulation) bind(ctx context.Context, a *loop.Attempt) {
	if status := s.inbox.await(func() framework.Status { return a.Binding.Run(ctx) }); !status.OK() {
		s.Unbound(s.now, a, status)
		return
	}
	s.tell(a)
	s.summary.Scheduled++
	s.Bound(a.Pod.UID)
	node := a.Binding.Node
	bound := running(a.Pod, a.Node, s.now)
	s.Table.Place(bound, s.Table.Row(node.Name))
	s.watch(bound, node, s.now)
	s.Queue.Move(s.now, &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add}, Pod: bound})
}

func (s *Simulation) tell(a *loop.Attempt) {
	s.report.Attempt(&Attempt{At: s.now.Sub(s.start), Attempt: *a})
}

// Attempted reports, and gives up a pod whose attempts end in errors.
func (s *Simulation) Attempted(a *loop.Attempt) {
	s.tell(a)
	if a.Outcome != loop.Failed && a.Place() != queue.Binding { // those are tried again whatever happens
		return
	}
	if s.errors[a.Pod.UID]++; s.errors[a.Pod.UID] == maxErrors {
		s.Bound(a.Pod.UID)
		s.summary.Unschedulable++
	}
}

// Warn has nobody to tell.
func (*Simulation) Warn(*nodetable.Pod, loop.Warning) {}

// Promised has nobody to tell.
func (*Simulation) Promised(*nodetable.Pod, string) {}

// moved tells of a pod that a gate holds back.
func (s *Simulation) moved(e *queue.Entry, _ queue.Place, _ framework.Event) {
	if e.Place() == queue.Gated {
		s.tell(&loop.Attempt{Entry: e, Pod: e.Pod, Number: e.Attempts, Outcome: loop.Gated, Message: e.Gate.Message()})
	}
}

// total completes the summary with where the pods are that have no node.
func (s *Simulation) total() Summary {
	s.summary.Gated = s.Queue.Depth(queue.Gated)
	s.summary.Waiting = s.Waiting()
	for _, place := range []queue.Place{queue.Active, queue.Backoff, queue.Unschedulable} {
		s.summary.Unschedulable += s.Queue.Depth(place)
	}
	return s.summary
}

// binder is the API server: nobody can refuse a pod its node here.
type binder struct{}

func (binder) Bind(context.Context, *nodetable.Pod, *nodetable.Node) error { return nil }
