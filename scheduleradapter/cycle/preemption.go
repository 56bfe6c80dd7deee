package cycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// preemption is the deletion of the victims of a preemptor.
type preemption struct {
	preemptor  types.UID
	group      []types.UID // pods of the preemptor, if it is a pod group
	tasks      int         // running deletions and canceled binding cycles
	unobserved int         // deleted victims whose deletion no informer has reported
	failed     bool        // a victim could not be deleted
}

// deletedVictim is a victim whose deletion no informer has reported.
type deletedVictim struct {
	deadline   time.Time // end of its grace period
	preemption *preemption
}

// isPreempting reports whether a preemptor is gated by PreEnqueue. Deletions that no
// informer has reported gate it only while it is nominated.
func (l *Loop) isPreempting(preemptor types.UID) bool {
	p := l.preemptions[preemptor]
	return p != nil && (p.tasks > 0 || p.group != nil || l.Nominator.Node(preemptor) != "")
}

func (l *Loop) isDeletingVictims() bool {
	for _, p := range l.preemptions {
		if p.tasks > 0 {
			return true
		}
	}
	return false
}

// Preempt rejects victims that wait for Permit, cancels the binding cycles of
// victims in PreBind, and deletes the others on a goroutine. The preemptor is gated
// until the informers have reported all deletions.
func (l *Loop) Preempt(a *Attempt) {
	p := l.preemptions[a.Pod.UID]
	var running []*nodetable.Pod
	for _, victim := range a.Victims {
		kind := "pod"
		if a.IsPodGroup() {
			kind = "podgroup"
		}
		note := fmt.Sprintf("Preempted by %s %s on node %s", kind, a.Pod.UID, a.Nominated)
		switch assumed := l.assumed[victim.UID]; {
		case l.IsWaiting(victim.UID):
			l.Reject(victim.UID, framework.Status{Code: framework.Unschedulable, Plugin: preempt.Name, Reason: "preempted"})
			note += " (in kube-scheduler memory)."
		case assumed != nil && assumed.cancelPreBind():
			assumed.cancel()
			assumed.canceledFor = p
			p.tasks++
			note += " (in kube-scheduler memory)."
		case victim.Terminating:
			continue
		default:
			running = append(running, victim)
		}
		l.cfg.Log.Info("pod is preempted", "pod", victim, "preemptor", a.Pod, "node", a.Nominated)
		l.recordEvent(victim, a.Pod, v1.EventTypeNormal, "Preempted", "Preempting", note)
	}
	if len(running) > 0 {
		p.tasks++
		l.goroutines.Go(func() {
			begin := time.Now()
			err := l.deleteVictims(l.work, running, a.Pod, p)
			l.metrics.preemptionExecuted(err, time.Since(begin))
			l.Do(func() {
				if err != nil {
					p.failed = true
					l.cfg.Log.Warn("victim of preemption is not deleted", "preemptor", a.Pod, "error", err)
				}
				l.preemptionTaskDone(p)
			})
		})
	}
	l.preemptionTaskDone(p)
}

// deleteVictims deletes the victims, the last one after all others: its deletion
// event activates the preemptor.
// Source: kube-scheduler's preemption.Executor.
func (l *Loop) deleteVictims(ctx context.Context, victims []*nodetable.Pod, preemptor *nodetable.Pod, p *preemption) error {
	last := len(victims) - 1
	errs := make([]error, len(victims))
	deleteVictim := func(i int) {
		if err := l.cfg.API.DeleteVictim(ctx, victims[i].OwnObject(), preemptor.Object); err != nil {
			errs[i] = fmt.Errorf("delete pod %s: %w", victims[i], err)
			return
		}
		l.Do(func() { l.victimDeleted(victims[i].UID, p) })
	}
	var others sync.WaitGroup
	for i := range victims[:last] {
		others.Go(func() { deleteVictim(i) })
	}
	others.Wait()
	deleteVictim(last)
	return errors.Join(errs...)
}

// victimDeleted marks a victim as terminating before an informer reports it, so that
// no other attempt selects it again.
func (l *Loop) victimDeleted(uid types.UID, p *preemption) {
	pod, row := l.Table.Find(uid)
	if pod == nil || pod.Terminating && !deletedImmediately(pod.Object) {
		return // an informer has reported the deletion
	}
	d := deletedVictim{preempt.TerminationDeadline(pod, l.wallTime(l.now())), p}
	l.deletedVictims[uid] = d
	p.unobserved++
	if !pod.Terminating {
		l.Table.Place(TerminatingPod(pod, d.deadline, v1.PodReasonPreemptionByScheduler), row)
	}
}

// victimDeletionObserved records that an informer has reported a pod as terminating
// or deleted.
func (l *Loop) victimDeletionObserved(uid types.UID) {
	if d, found := l.deletedVictims[uid]; found {
		delete(l.deletedVictims, uid)
		d.preemption.unobserved--
		l.finishPreemption(d.preemption)
	}
}

// deletedImmediately reports whether a deletion event of a terminating pod follows
// at once: the API server stores a grace period of zero before it deletes the pod.
func deletedImmediately(pod *v1.Pod) bool {
	return pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 && len(pod.Finalizers) == 0
}

func (l *Loop) preemptionTaskDone(p *preemption) {
	p.tasks--
	l.finishPreemption(p)
}

// finishPreemption ends a preemption without tasks and unobserved deletions. The
// preemptor is activated if it was gated, and retried after its backoff if a deletion failed:
// kube-scheduler retries at once, and sends as many requests as the server refuses.
func (l *Loop) finishPreemption(p *preemption) {
	if p.tasks > 0 || p.unobserved > 0 && !p.failed || l.preemptions[p.preemptor] != p {
		return
	}
	delete(l.preemptions, p.preemptor)
	for _, uid := range append(p.group, p.preemptor) {
		switch e := l.Queue.Get(uid); {
		case e == nil:
			continue
		case p.failed:
			l.Queue.Retry(l.now(), uid)
			return
		case !e.Gate.OK():
			l.Queue.Activate(l.now(), uid)
			return
		}
	}
}
