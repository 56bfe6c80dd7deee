package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// Preempt makes victims go: those that the API server does not know to be on a
// node by itself, the others beside the loop. Until all have been told, the
// preemptor is not tried again.
func (l *Loop) Preempt(a *Attempt) {
	var told []*nodetable.Pod
	for _, victim := range a.Victims {
		note := fmt.Sprintf("Preempted by pod %s on node %s", a.Pod.UID, a.Nominated)
		switch f := l.assumed[victim.UID]; {
		case l.Waits(victim.UID):
			l.Deny(l.now(), victim.UID, framework.Status{Code: framework.Unschedulable, Plugin: preempt.Name, Reason: "preempted"})
			note += " (in kube-scheduler memory)."
		case f != nil && f.withdraw():
			f.cancel()
			f.preemptor = a.Pod
			l.preparing[a.Pod.UID]++
			note += " (in kube-scheduler memory)."
		case victim.Terminating:
			continue
		default:
			told = append(told, victim)
		}
		l.cfg.Log.Info("pod is preempted", "pod", victim, "by", a.Pod, "node", a.Nominated)
		l.tell(victim, a.Pod, v1.EventTypeNormal, "Preempted", "Preempting", note)
	}
	if len(told) > 0 {
		l.preparing[a.Pod.UID]++
		l.beside.Go(func() {
			err := l.evict(l.work, told, a.Pod)
			l.Do(func() { l.prepared(a.Pod, err) })
		})
	}
	l.prepared(a.Pod, nil)
}

// evict tells the victims to go, the last one when all others have been told: as
// soon as it is gone there is room.
func (l *Loop) evict(ctx context.Context, victims []*nodetable.Pod, preemptor *nodetable.Pod) error {
	last := len(victims) - 1
	errs := make([]error, len(victims))
	one := func(i int) {
		if err := l.cfg.API.Evict(ctx, victims[i].Object, preemptor.Object); err != nil {
			errs[i] = fmt.Errorf("evict pod %s: %w", victims[i], err)
			return
		}
		l.Do(func() { l.leaves(victims[i].UID) })
	}
	var others sync.WaitGroup
	for i := range victims[:last] {
		others.Go(func() { one(i) })
	}
	others.Wait()
	one(last)
	return errors.Join(errs...)
}

// leaves takes a victim to be on its way out, though the API server has not told
// so yet: whoever is tried before would take it for one that can be made to go.
func (l *Loop) leaves(uid types.UID) {
	if pod, row := l.Table.Find(uid); pod != nil && !pod.Terminating {
		l.leaving[uid] = true
		l.Table.Place(Leaving(pod, l.now(), v1.PodReasonPreemptionByScheduler), row)
	}
}

// prepared ends one of the things that a preemptor waits for; the last one opens
// its gate. Where something meanwhile would have had it tried again, or a victim
// stays, it is.
func (l *Loop) prepared(pod *nodetable.Pod, err error) {
	if l.preparing[pod.UID]--; l.preparing[pod.UID] == 0 {
		delete(l.preparing, pod.UID)
	}
	if err != nil {
		l.cfg.Log.Warn("a victim of preemption stays", "preemptor", pod, "error", err)
	}
	if e := l.Queue.Get(pod.UID); e != nil && (err != nil || !e.Gate.OK()) {
		l.Queue.Activate(l.now(), pod.UID)
	}
}
