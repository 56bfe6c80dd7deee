package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// API is the API server. PatchStatus and Tell return at once and are called on the
// loop's goroutine; Evict takes its time beside it.
type API interface {
	// PatchStatus writes into a pod's status what differs from what is there.
	PatchStatus(pod *v1.Pod, s Status)
	// Tell records an event; it may be lost.
	Tell(e Event)
	// Evict marks a pod as a victim of preemption and deletes it. A pod that is gone
	// already is no error.
	Evict(ctx context.Context, victim, preemptor *v1.Pod) error
}

// Status is what a pod's status is to say.
type Status struct {
	// Reason and Message are those of the condition PodScheduled, which is False;
	// without a reason it stays as it is.
	Reason, Message string
	// Nominated is status.nominatedNodeName; nil leaves it as it is.
	Nominated *string
}

// With is what s and a later status say together.
func (s Status) With(later Status) Status {
	if later.Reason != "" {
		s.Reason, s.Message = later.Reason, later.Message
	}
	if later.Nominated != nil {
		s.Nominated = later.Nominated
	}
	return s
}

// Event is one of events.k8s.io.
type Event struct {
	Regarding, Related         *v1.Pod // Related may be nil
	Type, Reason, Action, Note string
	// Controller is the scheduler's name that reports.
	Controller string
}

// Config is how a Loop runs.
type Config struct {
	Parts
	API     API
	Log     *slog.Logger
	Metrics *metric.Set
	// MaxBindings is how many pods without volumes may be on their way to their
	// nodes at once, before the next is tried; zero: 256.
	MaxBindings int
	// Drain is how long bindings under way are waited for at the end; zero: 10 s.
	Drain time.Duration
	// Clock says what time it is; nil: the wall clock's time at the start and what
	// has passed since, whatever becomes of the wall clock.
	Clock func() time.Time
	// Wall is the clock by which the API server's objects tell of instants; nil: the
	// wall clock.
	Wall func() time.Time
}

// ErrDeposed is the cause to end a loop's context with where another scheduler
// has taken over: bindings under way are broken off.
var ErrDeposed = errors.New("another scheduler has the lease")

// Loop schedules the pods of a live cluster.
type Loop struct {
	*Core
	cfg     Config
	mailbox *mailbox
	metrics *metrics
	latest  time.Time // the latest instant that the clock told
	leads   bool

	assumed   map[types.UID]*flight
	bindings  int                        // under way, of pods without volumes
	preparing map[types.UID]*preparation // by preemptor
	wrote     map[types.UID]string       // nominations that the API server has not confirmed
	leaving   map[types.UID]departure    // victims that were deleted, of which the API server has not told
	permits   map[types.UID]time.Time    // since when pods wait for permission
	patches   []patch                    // to be written when the present step is over
	work      context.Context            // of what runs beside the loop
	beside    sync.WaitGroup
	running   atomic.Int64 // bindings under way
}

type patch struct {
	pod    *nodetable.Pod
	status Status
}

// New makes a loop. It schedules nothing before Lead.
func New(cfg Config) (*Loop, error) {
	if cfg.MaxBindings == 0 {
		cfg.MaxBindings = 256
	}
	if cfg.Drain == 0 {
		cfg.Drain = 10 * time.Second
	}
	if cfg.Clock == nil {
		cfg.Clock = steady()
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	l := &Loop{
		cfg: cfg, mailbox: newMailbox(), latest: cfg.Clock(), assumed: map[types.UID]*flight{}, preparing: map[types.UID]*preparation{},
		wrote: map[types.UID]string{}, leaving: map[types.UID]departure{}, permits: map[types.UID]time.Time{},
	}
	cfg.Parts.Env.Preparing = l.prepares
	l.metrics = newMetrics(cfg.Metrics, l)
	cfg.Parts.Measure = l.metrics.measure
	core, err := NewCore(l.latest, cfg.Parts, l)
	if err != nil {
		return nil, err
	}
	l.Core = core
	start := time.Now()
	l.Scheduler.Measure(func() time.Duration { return time.Since(start) })
	return l, nil
}

// steady is a clock that a change of the wall clock does not move: the queue
// rounds to whole seconds and would otherwise read the wall.
func steady() func() time.Time {
	start := time.Now()
	wall := start.Round(0)
	return func() time.Time { return wall.Add(time.Since(start)) }
}

// now does not go backwards.
func (l *Loop) now() time.Time {
	if now := l.cfg.Clock(); now.After(l.latest) {
		l.latest = now
	}
	return l.latest
}

// Do runs a function on the loop's goroutine, in the order of the calls. It
// returns at once; a function that comes after the end is dropped.
func (l *Loop) Do(f func()) { l.mailbox.post(f) }

// Lead lets the loop schedule from now on. What was posted before is known to it
// then.
func (l *Loop) Lead() { l.Do(func() { l.leads = true }) }

// Bindings is how many pods are on their way to their nodes. Any goroutine may
// ask.
func (l *Loop) Bindings() int { return int(l.running.Load()) }

// Run schedules until the context ends, and then waits for the bindings under
// way, at most for Config.Drain.
func (l *Loop) Run(ctx context.Context) error {
	var stop context.CancelFunc
	l.work, stop = context.WithCancel(context.WithoutCancel(ctx))
	defer l.beside.Wait()
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.mailbox.empty()
		now := l.now()
		l.Scheduler.Ahead = l.cfg.Wall().Round(0).Sub(now)
		if l.leads {
			l.Expire(now)
		}
		tried := l.try(now)
		l.flush()
		if tried {
			continue
		}
		if wait, bounded := l.idle(now); bounded {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-l.mailbox.signal:
		case <-timer.C:
		}
	}
	if !errors.Is(context.Cause(ctx), ErrDeposed) {
		l.drain()
	}
	return nil
}

// try makes the attempt that is due; false where none is, or too many bindings
// are under way.
func (l *Loop) try(now time.Time) bool {
	if !l.leads || l.bindings >= l.cfg.MaxBindings {
		return false
	}
	e := l.Queue.Pop(now)
	if e == nil {
		return false
	}
	begin := time.Now()
	a := l.Attempt(now, e)
	l.metrics.attempted(a, time.Since(begin))
	if a.Outcome == Scheduled {
		l.bind(a, begin)
	}
	return true
}

// idle is how long there is nothing to do unless something is posted.
func (l *Loop) idle(now time.Time) (time.Duration, bool) {
	next, any := l.Deadline()
	any = any && l.leads
	if l.leads && l.bindings < l.cfg.MaxBindings {
		if at, some := l.Queue.Next(now); some && (!any || at.Before(next)) {
			next, any = at, true
		}
	}
	return max(next.Sub(now), time.Millisecond), any
}

// drain waits for the bindings under way.
func (l *Loop) drain() {
	l.leads = false
	timeout := time.NewTimer(l.cfg.Drain)
	defer timeout.Stop()
	for l.mailbox.empty(); l.Bindings() > 0 || l.evicts(); l.mailbox.empty() {
		select {
		case <-l.mailbox.signal:
		case <-timeout.C:
			l.cfg.Log.Warn("bindings under way are broken off", "pods", l.Bindings())
			return
		}
	}
	l.flush()
}

// later writes a status when the present step is over, so that what is said of
// one pod goes out at once.
func (l *Loop) later(pod *nodetable.Pod, s Status) {
	for i := range l.patches {
		if p := &l.patches[i]; p.pod.UID == pod.UID {
			*p = patch{pod, p.status.With(s)}
			return
		}
	}
	l.patches = append(l.patches, patch{pod, s})
}

func (l *Loop) flush() {
	for _, p := range l.patches {
		l.cfg.API.PatchStatus(p.pod.Object, p.status)
	}
	clear(l.patches)
	l.patches = l.patches[:0]
}

// Attempted tells why a pod has no node. What the queue has let go of is nobody's
// to tell.
func (l *Loop) Attempted(a *Attempt) {
	if len(a.Victims) > 0 { // before the queue asks the gate, until Preempt has said what there is to wait for
		l.preparing[a.Pod.UID] = &preparation{preemptor: a.Pod.UID, tasks: 1}
	}
	since, waited := l.permits[a.Pod.UID]
	if delete(l.permits, a.Pod.UID); waited {
		l.metrics.permit("rejected", l.latest.Sub(since))
	}
	if a.Place() == queue.Nowhere {
		return
	}
	switch reason := v1.PodReasonUnschedulable; a.Outcome {
	case Waiting:
		l.permits[a.Pod.UID] = l.latest
		l.cfg.Log.Info("pod waits for permission", "pod", a.Pod, "node", a.Node)
	case Failed:
		reason = v1.PodReasonSchedulerError
		fallthrough
	default:
		l.cfg.Log.Info("pod has no node", "pod", a.Pod, "attempt", a.Number, "outcome", a.Outcome, "nominated", a.Nominated, "why", a.Message)
		l.later(a.Pod, Status{Reason: reason, Message: a.Message})
		l.tell(a.Pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", a.Message)
	}
}

// Promised writes the promise into the pod's status. Until the API server tells
// of it, what it tells of the pod is older.
func (l *Loop) Promised(pod *nodetable.Pod, node string) {
	l.wrote[pod.UID] = node
	l.later(pod, Status{Nominated: &node})
}

// Warn tells of a pod that preempts in vain.
func (l *Loop) Warn(pod *nodetable.Pod, w Warning) {
	if w.Reason == ReasonPreemptionLoop {
		l.metrics.loops.Inc()
	}
	l.cfg.Log.Warn("pod preempts in vain", "pod", pod, "reason", w.Reason, "why", w.Note)
	l.tell(pod, nil, v1.EventTypeWarning, w.Reason, "Preempting", w.Note)
}

func (l *Loop) tell(pod, related *nodetable.Pod, kind, reason, action, note string) {
	e := Event{Regarding: pod.Object, Type: kind, Reason: reason, Action: action, Note: note, Controller: pod.Object.Spec.SchedulerName}
	if related != nil {
		e.Related, e.Controller = related.Object, related.Object.Spec.SchedulerName
	}
	l.cfg.API.Tell(e)
}
