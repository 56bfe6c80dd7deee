package loop

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

// preparation is what a preemptor waits for before it is tried again.
type preparation struct {
	preemptor types.UID
	tasks     int  // that were begun here and have not ended
	unheard   int  // victims that were deleted, of which the API server has not told
	failed    bool // a victim could not be told to go
}

// departure is of a victim that was deleted.
type departure struct {
	gone  time.Time // when it is to be
	makes *preparation
}

// prepares says whether a preemptor is not to be tried yet. What the API server has
// not told holds it only as long as it is promised the room.
func (l *Loop) prepares(preemptor types.UID) bool {
	p := l.preparing[preemptor]
	return p != nil && (p.tasks > 0 || l.Promises.Node(preemptor) != "")
}

// evicts says whether victims are being told to go.
func (l *Loop) evicts() bool {
	for _, p := range l.preparing {
		if p.tasks > 0 {
			return true
		}
	}
	return false
}

// Preempt makes victims go: those that the API server does not know to be on a
// node by itself, the others beside the loop. Until all have been told, and the API
// server has told so, the preemptor is not tried again.
func (l *Loop) Preempt(a *Attempt) {
	p := l.preparing[a.Pod.UID]
	var told []*nodetable.Pod
	for _, victim := range a.Victims {
		note := fmt.Sprintf("Preempted by pod %s on node %s", a.Pod.UID, a.Nominated)
		switch f := l.assumed[victim.UID]; {
		case l.Waits(victim.UID):
			l.Deny(l.now(), victim.UID, framework.Status{Code: framework.Unschedulable, Plugin: preempt.Name, Reason: "preempted"})
			note += " (in kube-scheduler memory)."
		case f != nil && f.withdraw():
			f.cancel()
			f.makes = p
			p.tasks++
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
		p.tasks++
		l.beside.Go(func() {
			begin := time.Now()
			err := l.evict(l.work, told, a.Pod, p)
			l.metrics.executed(err, time.Since(begin))
			l.Do(func() {
				if err != nil {
					p.failed = true
					l.cfg.Log.Warn("a victim of preemption stays", "preemptor", a.Pod, "error", err)
				}
				l.ended(p)
			})
		})
	}
	l.ended(p)
}

// evict tells the victims to go, the last one when all others have been told: as
// soon as it is gone there is room.
func (l *Loop) evict(ctx context.Context, victims []*nodetable.Pod, preemptor *nodetable.Pod, p *preparation) error {
	last := len(victims) - 1
	errs := make([]error, len(victims))
	one := func(i int) {
		if err := l.cfg.API.Evict(ctx, victims[i].Object, preemptor.Object); err != nil {
			errs[i] = fmt.Errorf("evict pod %s: %w", victims[i], err)
			return
		}
		l.Do(func() { l.leaves(victims[i].UID, p) })
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
func (l *Loop) leaves(uid types.UID, makes *preparation) {
	pod, row := l.Table.Find(uid)
	if pod == nil || pod.Terminating && !vanishes(pod.Object) {
		return // it was told before
	}
	d := departure{preempt.Due(pod, l.wall(l.now())), makes}
	l.leaving[uid] = d
	makes.unheard++
	if !pod.Terminating {
		l.Table.Place(Leaving(pod, d.gone, v1.PodReasonPreemptionByScheduler), row)
	}
}

// heard takes up that the API server has told that a pod goes, or is gone.
func (l *Loop) heard(uid types.UID) {
	if d, victim := l.leaving[uid]; victim {
		delete(l.leaving, uid)
		d.makes.unheard--
		l.prepared(d.makes)
	}
}

// vanishes says whether the API server tells of a pod's end within a moment: it
// writes down every deletion, one without grace too, before it carries it out.
func vanishes(pod *v1.Pod) bool {
	return pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 && len(pod.Finalizers) == 0
}

// ended takes up that a task is over.
func (l *Loop) ended(p *preparation) {
	p.tasks--
	l.prepared(p)
}

// prepared opens the gate of a preemptor that has nothing to wait for any more but
// its victims' going. Where something meanwhile would have had it tried again, or a
// victim stays, it is.
func (l *Loop) prepared(p *preparation) {
	if p.tasks > 0 || p.unheard > 0 && !p.failed || l.preparing[p.preemptor] != p {
		return
	}
	delete(l.preparing, p.preemptor)
	if e := l.Queue.Get(p.preemptor); e != nil && (p.failed || !e.Gate.OK()) {
		l.Queue.Activate(l.now(), p.preemptor)
	}
}
