package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// inOrder has the objects that the scheduler is given before it pops the PodGroup, and those
// after that: other pods without a node would be popped first, and would be in flight.
func (c *cluster) inOrder() (before, after []runtime.Object) {
	for _, object := range c.objects {
		pod, is := object.(*v1.Pod)
		if g := c.podGroup; g != "" && is && pod.Spec.NodeName == "" && (pod.Spec.SchedulingGroup == nil || pod.Namespace+"/"+*pod.Spec.SchedulingGroup.PodGroupName != g) {
			after = append(after, object)
		} else {
			before = append(before, object)
		}
	}
	return before, after
}

// pop takes the PodGroup out of the queue; nil: none is attempted, or it is not active.
func (c *cluster) pop(ctx context.Context, s *scheduler.Scheduler) (framework.QueuedEntityInfo, error) {
	if c.podGroup == "" || len(s.SchedulingQueue.PodsInActiveQ()) == 0 {
		return nil, nil
	}
	return s.NextEntity(klog.FromContext(ctx))
}

// attemptPodGroup has the scheduler attempt a PodGroup. Bindings wait until the end of the
// context.
func (o *observed) attemptPodGroup(ctx context.Context, s *scheduler.Scheduler, popped framework.QueuedEntityInfo) {
	if popped == nil {
		o.Message = "the PodGroup is not active"
		return
	}
	s.NextEntity = func(klog.Logger) (framework.QueuedEntityInfo, error) { return popped, nil }
	o.first = true
	for name := range s.Profiles {
		s.Profiles[name] = o
	}
	s.FailureHandler = o.podFailed
	s.ScheduleOne(ctx)
}

// podFailed records why a pod of the group has no node.
func (o *observed) podFailed(_ context.Context, _ framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, _ time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return // the binding was canceled
	}
	end := podEnd{Message: status.Message()}
	if nominating.Mode() == fwk.ModeOverride {
		end.Nominated = nominating.NominatedNodeName
	}
	o.Pods[name(pod.Pod)] = end
}

var errEnded = errors.New("the attempt has ended")

// podGroupPatched records the condition of the PodGroup that a client wrote.
func (d *deletions) podGroupPatched(patch clienttesting.PatchAction) (bool, runtime.Object, error) {
	group := &schedulingv1beta1.PodGroup{}
	err := json.Unmarshal(patch.GetPatch(), group)
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := meta.FindStatusCondition(group.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled); c != nil {
		d.condition = condition{string(c.Status), c.Reason, c.Message}
	}
	return true, group, err
}
