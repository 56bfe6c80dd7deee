package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/wire"
)

// rewriteWindow is how long after its first write a terminal phase is checked: a kubelet
// without knowledge of the eviction writes its own status.
const rewriteWindow = 10 * time.Second

// victim is an intent and which parts of it were written.
type victim struct {
	wire.Intent
	targeted bool // the condition DisruptionTarget was written, or there is none
	// succeeded: the pod had the phase Succeeded when that was written, and keeps it.
	succeeded bool
	failed    time.Time // when it was first written; zero before
	// The events were queued.
	evicted, overdue, overridden bool
}

// addIntent stores the state of an intent; the lock is held.
func (p *Publisher) addIntent(intent *wire.Intent) {
	v := p.intents[intent.ID]
	if v == nil {
		v = &victim{}
		p.intents[intent.ID] = v
	}
	v.Intent = *intent
	if !v.Requested || v.Override != "" || !v.Ended.IsZero() {
		p.addEvicted(v)
	}
	if v.Overdue && !v.overdue {
		v.overdue = true
		p.enqueue(overdueEvent(intent))
	}
	if v.Override != "" && !v.overridden {
		v.overridden = true
		p.enqueue(overriddenEvent(intent))
	}
	p.victims.trigger()
	if v.Requested {
		p.evictions.trigger() // its request awaits it
	}
}

// addEvicted queues the event Evicted, once, when a pod is evicted: not while the Eviction API
// has not granted that. The lock is held.
func (p *Publisher) addEvicted(v *victim) {
	if !v.evicted {
		v.evicted = true
		p.enqueue(evictedEvent(&v.Intent))
	}
}

// Evicting says whether the status of an evicted pod is still being written.
func (p *Publisher) Evicting(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.intents {
		if v.UID == uid {
			return true
		}
	}
	return false
}

// Idle says whether no status and no event is waiting to be written.
func (p *Publisher) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.intents {
		unwritten := !v.targeted || !v.Ended.IsZero() && v.failed.IsZero()
		if unwritten && (!v.Requested || v.Override != "") {
			return false
		}
	}
	return len(p.queue) == 0
}

// reportVictims writes the state of each victim.
func (p *Publisher) reportVictims(ctx context.Context) error {
	p.mu.Lock()
	ids := slices.Sorted(maps.Keys(p.intents))
	p.mu.Unlock()
	var faults []error
	for _, id := range ids {
		p.mu.Lock()
		v := *p.intents[id]
		p.mu.Unlock()
		done, err := p.reportVictim(ctx, &v)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		p.mu.Lock()
		if done {
			delete(p.intents, id)
		} else {
			has := p.intents[id]
			has.targeted, has.succeeded, has.failed = v.targeted, v.succeeded, v.failed
		}
		p.mu.Unlock()
		if done {
			p.send(wire.FromAgent{Reported: id})
			p.surplus.trigger()
		}
	}
	return errors.Join(faults...)
}

// reportVictim writes that the victim is being evicted at once, and that it has failed when
// it has ended and the taint is written: a controller replaces a pod whose phase is
// terminal. It writes the phase again where it was overwritten, and none where the kubelet has reported that
// the pod has succeeded: its Job is complete. It says whether everything is written.
func (p *Publisher) reportVictim(ctx context.Context, v *victim) (done bool, err error) {
	if v.Requested && v.Override == "" {
		if v.Ended.IsZero() {
			return false, nil
		}
		return p.deletePod(ctx, v)
	}
	if !v.targeted {
		if gone, err := p.markTarget(ctx, v); err != nil || gone {
			return gone, err
		}
		v.targeted = true
	}
	if v.Ended.IsZero() || v.succeeded {
		return v.succeeded && !v.Ended.IsZero(), nil
	}
	if v.failed.IsZero() {
		if may, err := p.taintFirst(ctx); err != nil || !may {
			return false, err
		}
		gone, err := p.markFailed(ctx, v)
		if err == nil {
			v.failed = time.Now()
		}
		return gone, err
	}
	pod, err := p.client.CoreV1().Pods(v.Namespace).Get(ctx, v.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != v.UID {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read pod %s/%s: %w", v.Namespace, v.Name, err)
	}
	if !hasStatus(pod, v) {
		if gone, err := p.markFailed(ctx, v); err != nil || gone {
			return gone, err
		}
	}
	return time.Since(v.failed) > rewriteWindow, nil
}

// hasStatus says whether the pod has the status that evictd wrote.
func hasStatus(pod *v1.Pod, v *victim) bool {
	s := &pod.Status
	if s.Phase != v1.PodFailed || s.Reason != eviction.ReasonEvicted || s.Message != v.Message {
		return false
	}
	return !v.DisruptionTarget || slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
	})
}

// markTarget writes the condition DisruptionTarget, which shows that the pod is being
// evicted and why. It says whether the pod is deleted.
func (p *Publisher) markTarget(ctx context.Context, v *victim) (gone bool, err error) {
	if !v.DisruptionTarget {
		return false, nil
	}
	pod, gone, err := p.patchStatus(ctx, v, object{"conditions": v.conditions()})
	v.succeeded = err == nil && !gone && pod.Status.Phase == v1.PodSucceeded
	return gone, err
}

// markFailed writes the status of an evicted pod. It says whether the pod is deleted.
func (p *Publisher) markFailed(ctx context.Context, v *victim) (gone bool, err error) {
	status := object{"phase": v1.PodFailed, "reason": eviction.ReasonEvicted, "message": v.Message}
	var conditions []v1.PodCondition
	if v.DisruptionTarget {
		conditions = v.conditions()
	}
	if p.bounds.set() {
		conditions = append(conditions, v1.PodCondition{Type: reportedCondition, Status: v1.ConditionTrue, Reason: eviction.ReasonEvicted, LastTransitionTime: metav1.NewTime(v.Ended)})
	}
	if conditions != nil {
		status["conditions"] = conditions
	}
	_, gone, err = p.patchStatus(ctx, v, status)
	return gone, err
}

func (v *victim) conditions() []v1.PodCondition {
	return []v1.PodCondition{{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, ObservedGeneration: v.Generation,
		Reason: eviction.ReasonTerminationByKubelet, Message: v.Message, LastTransitionTime: metav1.NewTime(v.Decided),
	}}
}

// patchStatus patches the status of a pod. The uid in the patch is a precondition: a later
// pod of the same name is not changed. It returns the pod as it is then, and says whether it is deleted.
func (p *Publisher) patchStatus(ctx context.Context, v *victim, status object) (pod *v1.Pod, gone bool, err error) {
	body := patch(object{"metadata": object{"uid": v.UID}, "status": status})
	pod, err = p.client.CoreV1().Pods(v.Namespace).Patch(ctx, v.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	p.requests.record("pod status", err)
	if p.isGone(ctx, v.Namespace, v.Name, v.UID, err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("patch status of pod %s/%s: %w", v.Namespace, v.Name, err)
	}
	return pod, false, nil
}

// isGone says whether a request that failed with err found the pod deleted, or another pod
// under its name. A conflict or an invalid object alone does not say so, since an admission
// webhook can cause both: the uid of the present pod does.
func (p *Publisher) isGone(ctx context.Context, namespace, name string, uid types.UID, err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		var pod *v1.Pod
		if pod, err = p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			return pod.UID != uid
		}
	}
	return apierrors.IsNotFound(err)
}

// deletePod completes the deletion of a pod that was evicted by the Eviction API.
// Without a kubelet, evictd confirms that no process of it is left.
func (p *Publisher) deletePod(ctx context.Context, v *victim) (done bool, err error) {
	if !p.node.Register {
		return true, nil
	}
	zero := int64(0)
	err = p.client.CoreV1().Pods(v.Namespace).Delete(ctx, v.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(v.UID)),
	})
	if err != nil && !p.isGone(ctx, v.Namespace, v.Name, v.UID, err) {
		return false, fmt.Errorf("delete pod %s/%s: %w", v.Namespace, v.Name, err)
	}
	return true, nil
}
