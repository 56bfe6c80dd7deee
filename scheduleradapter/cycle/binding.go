package cycle

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// Binding is the binding cycle of an assumed pod. It does not use the table; any
// goroutine may run it.
type Binding struct {
	framework.Assignment
	runner *framework.Runner
}

// Run runs PreBind, Bind and PostBind. If it fails, the owner of the Scheduler
// calls HandleBindingFailure.
func (b Binding) Run(ctx context.Context) framework.Status {
	if s := b.runner.PreBind(ctx, b.Assignment); !s.OK() {
		return s
	}
	if s := b.runner.Bind(ctx, b.Assignment); !s.OK() {
		return s
	}
	b.runner.PostBind(ctx, b.Assignment)
	return framework.Status{}
}

// assumedPod is a pod whose binding cycle runs, or whose binding no informer has
// reported yet.
type assumedPod struct {
	*Attempt
	begin  time.Time // of the attempt
	cancel context.CancelFunc
	stage  atomic.Int32
	// bound: the binding cycle succeeded; no informer has reported the node yet.
	bound bool
	// node is spec.nodeName as an informer reported it; empty: none. deleted: an
	// informer reported the deletion of the pod.
	node    string
	deleted bool
	// canceledFor is the preemption that canceled the binding cycle; nil: none.
	canceledFor *preemption
	// quick: the binding cycle waits for the API server only, and not for volumes or
	// devices.
	quick bool
}

// Stages of a binding cycle. It can be canceled in the stage PreBind.
const (
	stagePreBind int32 = iota
	stageBind
	stageCanceled
)

func (p *assumedPod) enterBind() bool     { return p.stage.CompareAndSwap(stagePreBind, stageBind) }
func (p *assumedPod) cancelPreBind() bool { return p.stage.CompareAndSwap(stagePreBind, stageCanceled) }

func (l *Loop) startBindingCycle(a *Attempt, begin time.Time) {
	a.Cycle = nil
	b := a.Binding
	p := &assumedPod{Attempt: a, begin: begin, quick: len(a.Pod.Claims) == 0 && !b.runner.PreBindPreFlight(b.Assignment)}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(l.work)
	l.assumed[a.Pod.UID] = p
	if p.quick {
		l.quickBindings++
	}
	l.bindings.Add(1)
	cycle := func() {
		status := l.bindingCycle(ctx, p)
		l.Do(func() { l.bindings.Add(-1); l.bindingCycleEnded(p, status) })
	}
	if !p.quick {
		l.goroutines.Go(cycle)
		return
	}
	select {
	case l.quickCycles <- cycle:
	default:
		l.goroutines.Go(func() {
			cycle()
			for next := range l.quickCycles {
				next()
			}
		})
	}
}

func (l *Loop) bindingCycle(ctx context.Context, p *assumedPod) framework.Status {
	b, begin, profile := p.Binding, time.Now(), p.Pod.Object.Spec.SchedulerName
	status := b.runner.PreBind(ctx, b.Assignment)
	l.metrics.point(framework.PreBind, status, profile, time.Since(begin))
	if !p.enterBind() {
		return framework.Status{Code: framework.Unschedulable, Plugin: preempt.Name, Reason: "preempted"}
	}
	if !status.OK() {
		return status
	}
	if ctx.Err() != nil { // the Lease is lost
		return framework.AsStatus(context.Cause(ctx))
	}
	begin = time.Now()
	status = b.runner.Bind(ctx, b.Assignment)
	l.metrics.point(framework.Bind, status, profile, time.Since(begin))
	if status.OK() {
		begin = time.Now()
		b.runner.PostBind(ctx, b.Assignment)
		l.metrics.point(framework.PostBind, status, profile, time.Since(begin))
	}
	return status
}

// bindingCycleEnded records the result of a binding cycle. What an informer has
// reported meanwhile overrides the result.
func (l *Loop) bindingCycleEnded(p *assumedPod, status framework.Status) {
	p.cancel()
	if p.quick {
		l.quickBindings--
	}
	now := l.now()
	switch {
	case p.deleted:
		delete(l.assumed, p.Pod.UID)
		l.forgetAssumedPod(now, p)
	case status.OK() || p.node == p.Node:
		l.podBound(now, p)
	case p.node != "":
		delete(l.assumed, p.Pod.UID)
		p.Binding.runner.Unreserve(p.Binding.Assignment)
		l.cfg.Log.Info("another client bound the pod", "pod", p.Pod, "node", p.node, "assumed", p.Node)
		l.PodLeft(now, p.Pod, p.Binding.Node.Name)
	case p.Entry.Pod.Terminating: // the API server does not bind a terminating pod
		delete(l.assumed, p.Pod.UID)
		l.removePendingPod(p.Entry.Pod)
		l.forgetAssumedPod(now, p)
	default:
		delete(l.assumed, p.Pod.UID)
		l.HandleBindingFailure(now, p.Attempt, status)
		l.metrics.attemptDone(p.Attempt, time.Since(p.begin))
	}
	if p.canceledFor != nil {
		l.preemptionTaskDone(p.canceledFor)
	}
}

// podBound records a bound pod. Until an informer reports the node, what informers
// report of the pod is older than the binding.
func (l *Loop) podBound(now time.Time, p *assumedPod) {
	if p.bound = true; p.node != "" {
		delete(l.assumed, p.Pod.UID)
	} else {
		l.Remove(p.Pod.UID)
		delete(l.unconfirmedNominations, p.Pod.UID)
	}
	l.metrics.podScheduled(p, now)
	l.cfg.Log.Info("pod is bound", "pod", p.Pod, "node", p.Node, "attempt", p.Number)
	l.recordEvent(p.Pod, nil, v1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned "+p.Pod.String()+" to "+p.Node)
}

func (l *Loop) forgetAssumedPod(now time.Time, p *assumedPod) {
	l.forget(p.Binding)
	l.PodLeft(now, p.Pod, p.Binding.Node.Name)
}

// Activate moves pods to the active queue. Only the loop's goroutine may call it.
func (l *Loop) Activate(pods ...types.UID) { l.Queue.Activate(l.now(), pods...) }

// Reject ends the wait of a pod with a plugin's status. Only the loop's goroutine
// may call it.
func (l *Loop) Reject(pod types.UID, status framework.Status) {
	l.Scheduler.Reject(l.now(), pod, status)
}

// Allow records that a plugin allows a waiting pod; the binding cycle starts when
// the last one does. Only the loop's goroutine may call it.
func (l *Loop) Allow(uid types.UID, plugin string) {
	w := l.waiting[uid]
	a := l.Scheduler.Allow(uid, plugin)
	if a == nil {
		return
	}
	l.metrics.permitWait("allowed", l.now().Sub(w.since))
	l.startBindingCycle(a, time.Now())
}
