package devices

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Events are those of nodes, claims, classes and slices, and: a claim was generated
// for the pod.
func (p *Plugin) Events() []framework.EventHint {
	const set = framework.Add | framework.Update
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeLabel | framework.UpdateNodeAllocatable}},
		{Event: framework.Event{Resource: framework.ResourceClaim, Action: set | framework.Delete}, Hint: p.claimChanged},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodGeneratedResourceClaim}, Hint: p.claimGenerated},
		{Event: framework.Event{Resource: framework.DeviceClass, Action: set}},
		{Event: framework.Event{Resource: framework.ResourceSlice, Action: set}},
	}
}

// claimChanged returns Queue if a claim lost its allocation, or if a claim of the pod
// was added or has another status.
func (p *Plugin) claimChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	was, is := claimOf(o.OldObject), claimOf(o.Object)
	switch {
	case was == nil && is == nil:
		return framework.Queue, fmt.Errorf("event %s is about a %T", o.Event, o.Object)
	case is == nil:
		return queueIf(was.Status.Allocation != nil), nil
	}
	freed := was != nil && was.Status.Allocation != nil && is.Status.Allocation == nil
	used := uses(pod.Object, is)
	if !freed && (!used || was != nil && equality.Semantic.DeepEqual(was.Status, is.Status)) {
		return framework.QueueSkip, nil
	}
	_, err := p.claimsOf(pod.Object, nil)
	return queueIf(err == nil), nil
}

// claimGenerated returns Queue if the pod has all claims.
func (p *Plugin) claimGenerated(o *framework.Occurrence, _ *nodetable.Pod) (framework.Hint, error) {
	if o.Pod == nil {
		return framework.Queue, nil
	}
	_, err := p.claimsOf(o.Pod.Object, nil)
	return queueIf(err == nil), nil
}

func claimOf(object any) *resourceapi.ResourceClaim {
	claim, _ := object.(*resourceapi.ResourceClaim)
	return claim
}

func queueIf(helps bool) framework.Hint {
	if helps {
		return framework.Queue
	}
	return framework.QueueSkip
}

// uses reports whether a pod's spec and status name a claim.
func uses(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	if pod.Namespace != claim.Namespace {
		return false
	}
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil && *name == claim.Name {
			return true
		}
	}
	return false
}
