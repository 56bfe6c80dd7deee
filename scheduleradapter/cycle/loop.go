package cycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// API writes to the API server. PatchStatus and RecordEvent do not block; the
// loop's goroutine calls them. Other goroutines call DeleteVictim, which blocks.
type API interface {
	// PatchStatus patches the fields of a pod's status that differ.
	PatchStatus(pod *v1.Pod, s Status)
	// RecordEvent records an event. Events may be dropped.
	RecordEvent(e Event)
	// PatchPodGroup patches a condition of a PodGroup's status. It does not block.
	PatchPodGroup(group *schedulingv1beta1.PodGroup, condition metav1.Condition)
	// DeleteVictim adds the condition DisruptionTarget to a victim and deletes it. A
	// victim that does not exist is no error. The kind of a preemptor that stands for a
	// PodGroup is PodGroup; that of pods is Pod or empty.
	DeleteVictim(ctx context.Context, victim, preemptor *v1.Pod) error
}

// Status is a patch of a pod's status.
type Status struct {
	// Reason and Message of the condition PodScheduled=False; an empty Reason leaves
	// the condition unchanged.
	Reason, Message string
	// Nominated is status.nominatedNodeName; nil leaves it unchanged.
	Nominated *string
	// Written is called after the last attempt to patch, with the resourceVersion of the
	// pod; empty: nothing was written. nil: not called.
	Written func(resourceVersion string)
}

// With merges a later patch into s.
func (s Status) With(later Status) Status {
	if later.Reason != "" {
		s.Reason, s.Message = later.Reason, later.Message
	}
	if later.Nominated != nil {
		s.Nominated, s.Written = later.Nominated, later.Written
	}
	return s
}

// Event of events.k8s.io.
type Event struct {
	Regarding, Related         *v1.Pod // Related may be nil
	Type, Reason, Action, Note string
	// Controller is the scheduler name of the reporting profile.
	Controller string
}

// LoopConfig configures a Loop.
type LoopConfig struct {
	Config
	API     API
	Log     *slog.Logger
	Metrics *metric.Set
	// MaxBindings bounds the running binding cycles of pods that wait neither for volumes nor for devices; zero: 256.
	MaxBindings int
	// Clock returns the time; nil: the wall clock at the start plus the monotonic time
	// since then.
	Clock func() time.Time
	// Wall is the clock of API objects; nil: the wall clock.
	Wall func() time.Time
}

// shutdownTimeout bounds how long Run waits for running binding cycles after its context
// has ended.
const shutdownTimeout = 10 * time.Second

// ErrLeaseLost is the cause that ends a loop's context when another scheduler leads.
// Running binding cycles are canceled.
var ErrLeaseLost = errors.New("another scheduler has the lease")

// Loop schedules the pods of a live cluster.
type Loop struct {
	*Scheduler
	cfg     LoopConfig
	calls   *Calls
	metrics *metrics
	latest  time.Time // the latest time that the clock returned
	leads   bool

	assumed                map[types.UID]*assumedPod
	quickBindings          int                       // running binding cycles of pods that wait neither for volumes nor for devices
	quickCycles            chan func()               // those cycles; goroutines that have run some wait here, with stacks that have grown
	preemptions            map[types.UID]*preemption // by preemptor
	unconfirmedNominations map[types.UID]*unconfirmedNomination
	deletedVictims         map[types.UID]deletedVictim // deletion not yet reported by an informer
	patches                []patch                     // written at the end of a step
	suspended              *suspendedAttempt           // nil: no attempt waits for an extender
	scheduledGroups        map[types.UID]bool          // PodGroups that were scheduled, which informers may not have reported
	work                   context.Context             // of the goroutines
	goroutines             sync.WaitGroup
	bindings               atomic.Int64 // running binding cycles
	step                   atomic.Int64 // begin of the running step in Unix nanoseconds; 0: the loop waits
}

type patch struct {
	pod    *nodetable.Pod
	status Status
}

// NewLoop makes a loop. It schedules nothing before Lead.
func NewLoop(cfg LoopConfig) (*Loop, error) {
	cfg.MaxBindings = cmp.Or(cfg.MaxBindings, 256)
	if cfg.Clock == nil {
		cfg.Clock = monotonicClock()
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	l := &Loop{
		cfg: cfg, calls: NewCalls(), latest: cfg.Clock(), assumed: map[types.UID]*assumedPod{}, quickCycles: make(chan func()), preemptions: map[types.UID]*preemption{},
		unconfirmedNominations: map[types.UID]*unconfirmedNomination{}, deletedVictims: map[types.UID]deletedVictim{}, scheduledGroups: map[types.UID]bool{},
	}
	cfg.Config.Env.Preempting = l.isPreempting
	l.metrics = newMetrics(cfg.Metrics, l)
	cfg.Config.WrapProfile = l.metrics.measureHints
	s, err := New(l.latest, cfg.Config, l)
	if err != nil {
		return nil, err
	}
	l.Scheduler = s
	start := time.Now()
	l.Measure(func() time.Duration { return time.Since(start) })
	return l, nil
}

// monotonicClock is a clock that a change of the wall clock does not affect. Its
// times have no monotonic reading, because the queue truncates them to seconds.
func monotonicClock() func() time.Time {
	start := time.Now()
	wall := start.Round(0)
	return func() time.Time { return wall.Add(time.Since(start)) }
}

// now never decreases.
func (l *Loop) now() time.Time {
	if now := l.cfg.Clock(); now.After(l.latest) {
		l.latest = now
	}
	return l.latest
}

// Do calls a function on the loop's goroutine, in the order of the calls of Do. It
// does not block. Functions that are posted after the end of Run are dropped.
func (l *Loop) Do(f func()) { l.calls.Add(f) }

// Ask calls a function on the loop's goroutine and returns its result. The error is
// that of the context.
func Ask[T any](ctx context.Context, l *Loop, f func() T) (T, error) {
	result := make(chan T, 1)
	l.Do(func() { result <- f() })
	select {
	case r := <-result:
		return r, nil
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("the scheduler does not answer: %w", ctx.Err())
	}
}

// Lead starts scheduling, after the functions that were posted before.
func (l *Loop) Lead() { l.Do(func() { l.leads = true }) }

// Bindings is the number of running binding cycles. Any goroutine may call it.
func (l *Loop) Bindings() int { return int(l.bindings.Load()) }

// Run schedules until the context ends. It then waits for the running binding
// cycles, at most for shutdownTimeout.
func (l *Loop) Run(ctx context.Context) error {
	var stop context.CancelFunc
	l.work, stop = context.WithCancel(context.WithoutCancel(ctx))
	defer l.goroutines.Wait()
	defer stop()
	defer close(l.quickCycles)
	timer := time.NewTimer(0)
	defer timer.Stop()
	// The Lease may be lost during an attempt: then no other binding begins.
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrLeaseLost) {
			stop()
		}
	})()
	l.Work, l.Suspends = ctx, true
	defer l.cycle.EndAttempt()
	for ctx.Err() == nil {
		l.stepped()
		l.calls.Run()
		l.stepped()
		now := l.now()
		l.ClockOffset = l.cfg.Wall().Round(0).Sub(now)
		if l.leads {
			l.Expire(now)
		}
		scheduled := l.scheduleNext(now)
		l.flush()
		if scheduled {
			continue
		}
		if wait, bounded := l.idleTime(now); bounded {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		l.step.Store(0)
		select {
		case <-ctx.Done():
		case <-l.calls.Signal:
		case <-timer.C:
		}
	}
	if !errors.Is(context.Cause(ctx), ErrLeaseLost) {
		l.shutDown()
	}
	return nil
}

// scheduleNext pops a pod, runs its scheduling cycle and starts its binding cycle.
// It returns false if there is no pod to pop or MaxBindings is reached.
func (l *Loop) scheduleNext(now time.Time) bool {
	if l.suspended != nil {
		return l.resume(now)
	}
	if !l.leads || l.quickBindings >= l.cfg.MaxBindings {
		return false
	}
	e := l.Queue.Pop(now)
	if e == nil {
		return false
	}
	l.attempt(now, e, time.Now())
	return true
}

// attempt runs the scheduling cycle of a pod, or of the pods of a PodGroup, and starts the
// binding cycles.
func (l *Loop) attempt(now time.Time, e *queue.Entry, begin time.Time) {
	var attempts []*Attempt
	if e.IsPodGroup() {
		attempts = l.SchedulePodGroup(now, e)
	} else if a := l.ScheduleOne(now, e); a != nil {
		l.metrics.attempted(a, time.Since(begin))
		attempts = []*Attempt{a}
	}
	if _, suspended := l.cycle.Suspended(); suspended {
		l.suspend(e, begin)
		return
	}
	for _, a := range attempts {
		if a.Outcome == Scheduled && l.work.Err() == nil {
			l.startBindingCycle(a, begin)
		}
	}
}

// stepped records that the loop begins a step.
func (l *Loop) stepped() { l.step.Store(time.Now().UnixNano()) }

// StepTimeout is how long an attempt, or the events between two attempts, may take
// before the loop counts as stuck: an out-of-tree plugin may ignore its context.
const StepTimeout = 2 * framework.AttemptTimeout

// Alive reports whether the loop waits for work or began its step within StepTimeout.
// Any goroutine may call it.
func (l *Loop) Alive() bool {
	began := l.step.Load()
	return began == 0 || time.Since(time.Unix(0, began)) < StepTimeout
}

// idleTime is how long the loop has nothing to do if nothing is posted; false: for
// ever.
func (l *Loop) idleTime(now time.Time) (time.Duration, bool) {
	next, found := l.Deadline()
	found = found && l.leads
	if l.leads && l.quickBindings < l.cfg.MaxBindings && l.suspended == nil {
		if at, ok := l.Queue.Next(now); ok && (!found || at.Before(next)) {
			next, found = at, true
		}
	}
	return max(next.Sub(now), time.Millisecond), found
}

// shutDown waits for running binding cycles and deletions.
func (l *Loop) shutDown() {
	l.leads = false
	timeout := time.NewTimer(shutdownTimeout)
	defer timeout.Stop()
	for l.calls.Run(); l.Bindings() > 0 || l.isDeletingVictims(); l.calls.Run() {
		select {
		case <-l.calls.Signal:
		case <-timeout.C:
			l.cfg.Log.Warn("binding cycles are canceled", "pods", l.Bindings())
			return
		}
	}
	l.flush()
}

// patchStatus writes a status at the end of the step, merged with the other patches
// of the pod.
func (l *Loop) patchStatus(pod *nodetable.Pod, s Status) {
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

// AttemptEnded patches the condition PodScheduled and records an event. Pods that
// the queue does not have are not reported.
func (l *Loop) AttemptEnded(a *Attempt) {
	if len(a.Victims) > 0 { // gates the preemptor from Queue.Fail until Preempt has started the deletions
		l.preemptions[a.Pod.UID] = &preemption{preemptor: a.Pod.UID, tasks: 1}
	}
	if a.waited != nil {
		l.metrics.permitWait("rejected", l.latest.Sub(a.waited.since))
	}
	if a.Place() == queue.Nowhere {
		return
	}
	switch reason := v1.PodReasonUnschedulable; a.Outcome {
	case Waiting:
		l.cfg.Log.Info("pod waits for Permit", "pod", a.Pod, "node", a.Node)
	case Failed:
		reason = v1.PodReasonSchedulerError
		fallthrough
	default:
		l.cfg.Log.Info("pod is not scheduled", "pod", a.Pod, "attempt", a.Number, "outcome", a.Outcome, "nominated", a.Nominated, "reason", a.Message)
		l.patchStatus(a.Pod, Status{Reason: reason, Message: a.Message})
		l.recordEvent(a.Pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", a.Message)
	}
}

// Nominated patches status.nominatedNodeName.
func (l *Loop) Nominated(pod *nodetable.Pod, node string) {
	u := &unconfirmedNomination{node: node}
	l.unconfirmedNominations[pod.UID] = u
	l.patchStatus(pod, Status{Nominated: &node, Written: func(version string) { l.Do(func() { l.nominationWritten(pod.UID, u, version) }) }})
}

// Warn logs a warning and records it as an event.
func (l *Loop) Warn(pod *nodetable.Pod, w Warning) {
	if w.Reason == ReasonPreemptionLoop {
		l.metrics.loops.Inc()
	}
	l.cfg.Log.Warn("preemption did not free a node", "pod", pod, "reason", w.Reason, "note", w.Note)
	l.recordEvent(pod, nil, v1.EventTypeWarning, w.Reason, "Preempting", w.Note)
}

func (l *Loop) recordEvent(pod, related *nodetable.Pod, kind, reason, action, note string) {
	e := Event{Regarding: pod.OwnObject(), Type: kind, Reason: reason, Action: action, Note: note, Controller: pod.Object.Spec.SchedulerName}
	if related != nil {
		e.Related, e.Controller = related.OwnObject(), related.Object.Spec.SchedulerName
	}
	l.cfg.API.RecordEvent(e)
}
