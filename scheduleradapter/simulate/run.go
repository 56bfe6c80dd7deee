package simulate

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/foreign"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
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
	Assembled func(foreign.Owner)
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
	objects   *Objects
	table     *nodetable.Table
	queue     *queue.Queue
	promises  *queue.Nominator
	scheduler *cycle.Scheduler
	storage   *volumes.Storage
	report    Reporter
	summary   Summary
	timers    timers
	start     time.Time
	now       time.Time
	errors    map[types.UID]int
	waiting   map[types.UID]*queue.Entry // for permission
	permitted []cycle.Binding
	inbox     *inbox
}

// New prepares a cluster, whose objects are not to be used again. The error joins
// what is wrong with them and with the configuration.
func New(objects *Objects, cfg Config, report Reporter) (*Simulation, error) {
	s := &Simulation{
		Config: cfg, objects: objects, report: report, table: nodetable.New(), promises: queue.NewNominator(),
		start: newest(objects), errors: map[types.UID]int{}, waiting: map[types.UID]*queue.Entry{}, inbox: newInbox(),
	}
	s.now = s.start
	s.storage = volumes.NewSimulatedStorage(s.table)
	profiles, err := cfg.Assemble(framework.Env{Table: s.table, Binder: binder{}, Budgets: s.budgets, Random: cfg.Random}, s.storage)
	if err != nil {
		return nil, err
	}
	s.scheduler = cycle.New(s.table, profiles, s.promises, cfg.Random)
	waits := queue.Config{Less: profiles[0].Less, Profiles: map[string]queue.Profile{}, InitialBackoff: cfg.InitialBackoff, MaxBackoff: cfg.MaxBackoff, Moved: s.moved}
	for _, p := range profiles {
		waits.Profiles[p.Profile()] = p
	}
	s.queue = queue.New(s.start, waits)
	if cfg.Assembled != nil {
		cfg.Assembled(foreign.Owner{Do: s.inbox.add, Scheduler: s.scheduler, Nominations: s.promises, Loop: &plugins{s}})
	}
	return s, s.populate()
}

// Run schedules the pods that have no node, in simulated time, and reports what
// happens. It ends early with the context's error.
func (s *Simulation) Run(ctx context.Context) error {
	for any := true; any; {
		s.settle(ctx)
		for e := s.queue.Pop(s.now); e != nil && ctx.Err() == nil; e = s.queue.Pop(s.now) {
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
		b := s.permitted[0]
		s.permitted = s.permitted[1:]
		s.bindPermitted(ctx, b)
		s.inbox.drain()
	}
	for {
		at, uid, plugin, any := s.scheduler.Deadline()
		if !any || at.After(s.now) {
			return
		}
		s.deny(uid, framework.Status{Code: framework.Unschedulable, Plugin: plugin, Reason: "timeout"})
	}
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
	deadline, _, _, waiting := s.scheduler.Deadline()
	consider(deadline, waiting)
	if any || s.For != nil || s.queue.Depth(queue.Active)+s.queue.Depth(queue.Backoff) > 0 {
		consider(s.queue.Next(s.now))
	}
	return next, any && (s.For == nil || next.Sub(s.start) <= *s.For)
}

// attempt looks for a node for a pod.
func (s *Simulation) attempt(ctx context.Context, e *queue.Entry) {
	a := &Attempt{At: s.now.Sub(s.start), Pod: e.Pod, Number: e.Attempts}
	r := s.scheduler.Attempt(e.Pod, s.now)
	a.Cycle, a.Message = r.Cycle, r.Message
	switch {
	case r.Status.OK():
		s.bind(ctx, e, a, r.Binding)
	case r.Status.Code == framework.Wait:
		a.Outcome, a.Node = Waiting, r.Binding.Node.Name.Value()
		s.waiting[a.Pod.UID] = e
		s.report.Attempt(a)
	default:
		s.fail(e, a, r)
	}
}

// bind ends a pod's way through the scheduler, unless binding fails.
func (s *Simulation) bind(ctx context.Context, e *queue.Entry, a *Attempt, b cycle.Binding) {
	s.queue.Permit(e)
	status := s.inbox.await(func() framework.Status { return b.Run(ctx) })
	if !status.OK() {
		s.scheduler.Forget(b)
		a.Message = status.Message()
		s.fail(e, a, cycle.Refused(status))
		s.queue.Move(s.now, &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, OldPod: a.Pod})
		return
	}
	a.Outcome, a.Node = Scheduled, b.Node.Name.Value()
	s.report.Attempt(a)
	s.summary.Scheduled++
	s.queue.Delete(a.Pod.UID)
	s.promises.Clear(a.Pod.UID)
	row := s.table.Row(b.Node.Name)
	bound := running(a.Pod, a.Node, s.now)
	s.table.Place(bound, row)
	s.watch(bound, b.Node, s.now)
	s.queue.Move(s.now, &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add}, Pod: bound})
}

// fail sends a pod back into the queue, with a promise where victims make room
// for it.
func (s *Simulation) fail(e *queue.Entry, a *Attempt, r cycle.Result) {
	a.Outcome = Unschedulable
	if r.Status.Code == framework.Error {
		a.Outcome = Failed
	}
	if a.Outcome == Failed || e.Place() == queue.Binding { // it is retried, whatever happens
		s.errors[a.Pod.UID]++
	}
	if r.Nomination.Node != nil {
		a.Outcome, a.Nominated, a.Victims = Nominated, r.Nomination.Node.Name.Value(), r.Nomination.Victims
	}
	s.report.Attempt(a)
	if s.errors[a.Pod.UID] == maxErrors {
		s.queue.Delete(a.Pod.UID)
		s.promises.Clear(a.Pod.UID)
		s.summary.Unschedulable++
		return
	}
	s.queue.Fail(s.now, e, queue.Rejection{Unschedulable: r.Rejectors, Pending: r.Pending})
	if r.Nomination.Decided {
		s.nominate(a.Pod, a.Nominated)
	}
	for _, victim := range a.Victims {
		s.preempt(victim)
	}
}

// nominate promises a node to a pod, or none. Those that matter less lose theirs
// to it.
func (s *Simulation) nominate(pod *nodetable.Pod, node string) {
	var outranked []*nodetable.Pod
	if node != "" {
		for other := range s.promises.On(nodetable.Intern(node)) {
			if other.Priority < pod.Priority {
				outranked = append(outranked, other)
			}
		}
	}
	for _, other := range outranked {
		s.promise(other, "")
	}
	s.promise(pod, node)
}

// promise writes into a pod's status what node it is promised.
func (s *Simulation) promise(pod *nodetable.Pod, node string) {
	if pod.Object.Status.NominatedNodeName != node {
		pod = changed(pod, func(object *v1.Pod) { object.Status.NominatedNodeName = node })
		if s.queue.Get(pod.UID) != nil {
			s.queue.Update(s.now, pod, 0)
		}
	}
	s.promises.Nominate(pod, node)
}

// bindPermitted binds a pod that waited for permission.
func (s *Simulation) bindPermitted(ctx context.Context, b cycle.Binding) {
	e := s.waiting[b.Pod.UID]
	delete(s.waiting, b.Pod.UID)
	s.bind(ctx, e, &Attempt{At: s.now.Sub(s.start), Pod: e.Pod, Number: e.Attempts}, b)
}

// deny ends a pod's wait for permission.
func (s *Simulation) deny(uid types.UID, status framework.Status) {
	e := s.waiting[uid]
	delete(s.waiting, uid)
	r, _ := s.scheduler.Reject(uid, status)
	s.fail(e, &Attempt{At: s.now.Sub(s.start), Pod: e.Pod, Number: e.Attempts, Message: r.Message}, r)
	s.queue.Move(s.now, &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, OldPod: e.Pod})
}

// moved tells of a pod that a gate holds back.
func (s *Simulation) moved(e *queue.Entry, _ queue.Place, _ framework.Event) {
	if e.Place() == queue.Gated {
		s.report.Attempt(&Attempt{At: s.now.Sub(s.start), Pod: e.Pod, Number: e.Attempts, Outcome: Gated, Message: e.Gate.Message()})
	}
}

// total completes the summary with where the pods are that have no node.
func (s *Simulation) total() Summary {
	s.summary.Gated = s.queue.Depth(queue.Gated)
	s.summary.Waiting = len(s.waiting)
	for _, place := range []queue.Place{queue.Active, queue.Backoff, queue.Unschedulable} {
		s.summary.Unschedulable += s.queue.Depth(place)
	}
	return s.summary
}

// binder is the API server: nobody can refuse a pod its node here.
type binder struct{}

func (binder) Bind(context.Context, *nodetable.Pod, *nodetable.Node) error { return nil }

// changed is the digest of a pod whose object is changed in what no digest holds.
func changed(pod *nodetable.Pod, change func(*v1.Pod)) *nodetable.Pod {
	digest, object := *pod, *pod.Object
	object.Status.Conditions = slices.Clone(object.Status.Conditions)
	change(&object)
	digest.Object = &object
	return &digest
}
