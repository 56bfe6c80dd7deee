package loop

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// flight is a pod that has its node here and not yet at the API server.
type flight struct {
	*Attempt
	begin  time.Time // of the attempt, for its duration
	cancel context.CancelFunc
	stage  atomic.Int32
	// landed says that the binding has ended well; the API server is still to tell.
	landed bool
	// node is where the API server says the pod is; gone, that it is no more.
	node string
	gone bool
	// makes is what it was withdrawn for; nil where nobody did.
	makes *preparation
}

// Stages of a binding: it can be withdrawn until it is committed.
const (
	prepares int32 = iota
	commits
	withdrawn
)

func (f *flight) commit() bool   { return f.stage.CompareAndSwap(prepares, commits) }
func (f *flight) withdraw() bool { return f.stage.CompareAndSwap(prepares, withdrawn) }

// settled says whether the API server has had its say.
func (f *flight) settled() bool { return f.gone || f.node != "" }

// quick says whether the binding has nothing to wait for but the API server.
func (f *flight) quick() bool { return len(f.Pod.Claims) == 0 }

// bind starts a binding beside the loop.
func (l *Loop) bind(a *Attempt, begin time.Time) {
	a.Cycle = nil
	f := &flight{Attempt: a, begin: begin}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(l.work)
	l.assumed[a.Pod.UID] = f
	if f.quick() {
		l.bindings++
	}
	l.running.Add(1)
	l.beside.Go(func() {
		status := l.carryOut(ctx, f)
		l.Do(func() { l.running.Add(-1); l.land(f, status) })
	})
}

func (l *Loop) carryOut(ctx context.Context, f *flight) framework.Status {
	begin := time.Now()
	status := f.Binding.Prepare(ctx)
	l.metrics.point(framework.PreBind, status, f.Pod.Object.Spec.SchedulerName, time.Since(begin))
	if !f.commit() {
		return framework.Status{Code: framework.Unschedulable, Plugin: preempt.Name, Reason: "preempted"}
	}
	if !status.OK() {
		return status
	}
	begin = time.Now()
	status = f.Binding.Commit(ctx)
	l.metrics.point(framework.Bind, status, f.Pod.Object.Spec.SchedulerName, time.Since(begin))
	if status.OK() {
		begin = time.Now()
		f.Binding.Finish(ctx)
		l.metrics.point(framework.PostBind, status, f.Pod.Object.Spec.SchedulerName, time.Since(begin))
	}
	return status
}

// land takes up how a binding ended. The API server may have told of the pod
// before: then that counts.
func (l *Loop) land(f *flight, status framework.Status) {
	f.cancel()
	if f.quick() {
		l.bindings--
	}
	now := l.now()
	switch {
	case f.gone:
		delete(l.assumed, f.Pod.UID)
		l.forget(now, f)
	case status.OK() || f.node == f.Node:
		l.landed(now, f)
	case f.node != "":
		delete(l.assumed, f.Pod.UID)
		f.Binding.Unreserve()
		l.cfg.Log.Info("pod was bound by somebody else", "pod", f.Pod, "node", f.node, "not", f.Node)
		l.left(now, f.Pod)
	case f.Entry.Pod.Terminating: // the API server binds no such pod
		delete(l.assumed, f.Pod.UID)
		l.removePending(f.Entry.Pod)
		l.forget(now, f)
	default:
		delete(l.assumed, f.Pod.UID)
		l.Unbound(now, f.Attempt, status)
		l.metrics.ended(f.Attempt, time.Since(f.begin))
	}
	if f.makes != nil {
		l.ended(f.makes)
	}
}

// landed ends a pod's way through the scheduler. What the API server tells of the
// pod before it tells of the node is old news.
func (l *Loop) landed(now time.Time, f *flight) {
	if f.landed = true; f.settled() {
		delete(l.assumed, f.Pod.UID)
	} else {
		l.Bound(f.Pod.UID)
		delete(l.wrote, f.Pod.UID)
	}
	l.metrics.scheduled(f, now)
	l.cfg.Log.Info("pod is bound", "pod", f.Pod, "node", f.Node, "attempt", f.Number)
	l.tell(f.Pod, nil, v1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned "+f.Pod.String()+" to "+f.Node)
}

// forget frees the node of a pod that is no more.
func (l *Loop) forget(now time.Time, f *flight) {
	l.Scheduler.Forget(f.Binding)
	l.left(now, f.Pod)
}

// Activate makes pods active, whatever they wait for. It is for the loop's
// goroutine.
func (l *Loop) Activate(pods ...types.UID) { l.Queue.Activate(l.now(), pods...) }

// Reject ends the wait of a pod with a plugin's status. It is for the loop's
// goroutine.
func (l *Loop) Reject(pod types.UID, status framework.Status) { l.Deny(l.now(), pod, status) }

// Allow is a plugin's permission for a pod that waits; the last one binds it. It
// is for the loop's goroutine, as Deny is.
func (l *Loop) Allow(uid types.UID, plugin string) {
	a := l.Core.Allow(uid, plugin)
	if a == nil {
		return
	}
	l.metrics.permit("allowed", l.now().Sub(l.permits[uid]))
	delete(l.permits, uid)
	l.bind(a, time.Now())
}
