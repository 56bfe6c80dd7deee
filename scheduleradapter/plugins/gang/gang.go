// Package gang is the plugin GangScheduling: it schedules minCount pods of a PodGroup
// with a gang policy, or none.
package gang

import (
	"fmt"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "GangScheduling"

// permitTimeout bounds how long a pod waits for minCount pods at Permit. Source:
// kube-scheduler's GangScheduling.
const permitTimeout = 5 * time.Minute

// Plugin is GangScheduling. Without Env.PodGroups it does nothing.
type Plugin struct{ env framework.Env }

func New(_ any, env framework.Env) (framework.Plugin, error) { return &Plugin{env}, nil }

func (*Plugin) Name() string { return Name }

// group is the PodGroup of a pod; false: the pod has none.
func (p *Plugin) group(pod *nodetable.Pod) (key nodetable.PodGroupKey, group *schedulingv1beta1.PodGroup, has bool) {
	if key = nodetable.PodGroupOf(pod.Object); p.env.PodGroups == nil || key == (nodetable.PodGroupKey{}) {
		return key, nil, false
	}
	return key, p.env.PodGroups.PodGroup(key), true
}

// PreEnqueue gates a pod until its PodGroup and minCount pods of it exist.
func (p *Plugin) PreEnqueue(pod *nodetable.Pod) framework.Status {
	gated := func(why string) framework.Status {
		return framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: why}
	}
	key, group, has := p.group(pod)
	switch {
	case !has:
	case group == nil:
		return gated(fmt.Sprintf("waiting for pods's pod group %q to appear in scheduling queue", key.Name))
	case group.Spec.SchedulingPolicy.Gang != nil && p.env.PodGroups.PodGroupPods(key) < minCount(group):
		return gated("waiting for minCount pods from a gang to appear in scheduling queue")
	}
	return framework.Status{}
}

// minCount is the number of pods that are scheduled together: 1 with the basic policy.
func minCount(group *schedulingv1beta1.PodGroup) int {
	if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
		return int(gang.MinCount)
	}
	return 1
}

// PlacementFeasible rejects a group whose minCount the remaining pods cannot reach.
func (p *Plugin) PlacementFeasible(group *schedulingv1beta1.PodGroup, scheduled, remaining int) framework.Status {
	switch least := minCount(group); {
	case remaining+scheduled < least:
		return framework.Status{Code: framework.Unschedulable, Reason: fmt.Sprintf("minCount (%d) cannot be satisfied: %d scheduled, %d remaining", least, scheduled, remaining)}
	case scheduled < least:
		return framework.Status{Code: framework.Wait, Reason: fmt.Sprintf("minCount (%d) is not yet satisfied: %d scheduled, %d remaining", least, scheduled, remaining)}
	}
	return framework.Status{}
}

// Permit delays the binding until minCount pods have nodes. The scheduler then allows
// those that wait.
func (p *Plugin) Permit(a framework.Assignment) (framework.Status, time.Duration) {
	key, group, has := p.group(a.Pod)
	switch {
	case !has:
	case group == nil:
		return framework.AsStatus(fmt.Errorf("failed to get podGroup %s: podgroup.scheduling.k8s.io %q not found", key, key.Name)), 0
	case group.Spec.SchedulingPolicy.Gang != nil && p.env.Table.PodGroupSize(key) < minCount(group):
		return framework.Status{Code: framework.Wait, Reason: "waiting for minCount pods from a gang to be scheduled"}, permitTimeout
	}
	return framework.Status{}, 0
}

// Events are: a pod of the group, or the PodGroup, was added; minCount was lowered.
func (p *Plugin) Events() []framework.EventHint {
	if p.env.PodGroups == nil {
		return nil
	}
	event := func(r framework.Resource, a framework.Action) framework.Event {
		return framework.Event{Resource: r, Action: a}
	}
	return []framework.EventHint{
		{Event: event(framework.UnscheduledPod, framework.Add), Hint: podAdded},
		{Event: event(framework.AssignedPod, framework.Add), Hint: podAdded},
		{Event: event(framework.PodGroupResource, framework.Add), Hint: groupAdded},
		{Event: event(framework.PodGroupResource, framework.Update), Hint: groupUpdated},
	}
}

func queueIf(worth bool) (framework.Hint, error) {
	if worth {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}

func podAdded(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	key := nodetable.PodGroupOf(pod.Object)
	return queueIf(o.Pod != nil && key != (nodetable.PodGroupKey{}) && key == nodetable.PodGroupOf(o.Pod.Object))
}

func isGroupOf(object any, pod *nodetable.Pod) (*schedulingv1beta1.PodGroup, bool) {
	group, ok := object.(*schedulingv1beta1.PodGroup)
	return group, ok && nodetable.PodGroupOf(pod.Object) == nodetable.PodGroupKey{Namespace: group.Namespace, Name: group.Name}
}

func groupAdded(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	_, own := isGroupOf(o.Object, pod)
	return queueIf(own)
}

func groupUpdated(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	group, own := isGroupOf(o.Object, pod)
	old, known := isGroupOf(o.OldObject, pod)
	if !own || !known {
		return framework.QueueSkip, nil
	}
	is, was := group.Spec.SchedulingPolicy.Gang, old.Spec.SchedulingPolicy.Gang
	return queueIf(is != nil && was != nil && is.MinCount < was.MinCount)
}
