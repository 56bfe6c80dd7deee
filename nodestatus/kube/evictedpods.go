package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/nodestatus"
)

// reportedCondition is a condition of the pods that evictd has reported as evicted, where their
// number is bounded: by it they are known later. Its last transition is the end of the pod.
const reportedCondition v1.PodConditionType = "evictd.io/Evicted"

// longestSurplus is how often evicted pods are counted at least, where they have bounds.
const longestSurplus = time.Minute

// evictedPods are the bounds of the evicted pods of the node.
type evictedPods struct{ nodestatus.EvictedPods }

func (b evictedPods) set() bool { return b != (evictedPods{}) }

// interval is how often evicted pods are counted.
func (b evictedPods) interval() time.Duration {
	if b.TTL > 0 {
		return min(max(b.TTL, time.Second), longestSurplus)
	}
	return longestSurplus
}

// deleteSurplus deletes the evicted pods of the node beyond their bounds, of those that evictd has
// reported. What has become of a pod meanwhile makes no difference: the uid is a precondition.
func (p *Publisher) deleteSurplus(ctx context.Context) error {
	list, err := p.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		ResourceVersion: "0",
		FieldSelector:   fields.Set{"spec.nodeName": p.node.Name, "status.phase": string(v1.PodFailed)}.String(),
	})
	if err != nil {
		return fmt.Errorf("list failed pods: %w", err)
	}
	var evicted []nodestatus.EvictedPod
	for i := range list.Items {
		pod := &list.Items[i]
		at, reported := reportedAt(pod)
		if !reported || pod.DeletionTimestamp != nil || p.Evicting(pod.UID) {
			continue
		}
		e := nodestatus.EvictedPod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, At: at}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			e.Owner = owner.UID
		}
		evicted = append(evicted, e)
	}
	var faults []error
	for _, e := range p.bounds.Surplus(evicted, time.Now()) {
		err := p.client.CoreV1().Pods(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(e.UID))})
		if err != nil && !p.isGone(ctx, e.Namespace, e.Name, e.UID, err) {
			faults = append(faults, fmt.Errorf("delete pod %s/%s: %w", e.Namespace, e.Name, err))
		} else if err == nil {
			p.log.Info("deleted an evicted pod", "pod", e.Namespace+"/"+e.Name, "evicted", e.At, "ttl", p.bounds.TTL, "perOwner", p.bounds.PerOwner)
		}
	}
	return errors.Join(faults...)
}

// reportedAt is when a pod ended that evictd has reported as evicted.
func reportedAt(pod *v1.Pod) (at time.Time, reported bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == reportedCondition {
			return c.LastTransitionTime.Time, pod.Status.Phase == v1.PodFailed && pod.Status.Reason == eviction.ReasonEvicted
		}
	}
	return at, false
}
