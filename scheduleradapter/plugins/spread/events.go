package spread

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Events are: a counted pod was added, deleted or relabeled; a node with the topology
// keys changed, or its taints if they count; the pod changed.
func (p *Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add | framework.Delete | framework.UpdatePodLabel}, Hint: p.podChanged},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodLabel | framework.UpdatePodToleration}, Hint: p.podChanged},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.Delete | framework.UpdateNodeLabel | framework.UpdateNodeTaint}, Hint: p.nodeChanged},
	}
}

// podChanged returns Queue if the other pod, or the pod itself, starts or ceases to
// match a constraint. A terminating pod counts until it is deleted, because no
// event reports that it ceases to count.
func (p *Plugin) podChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	tolerates := o.OldPod != nil && o.Pod != nil && o.Pod.UID == pod.UID && o.OldPod.Tolerations.Key != o.Pod.Tolerations.Key
	for _, c := range p.constraints(nil, pod, true) {
		counts := func(other *nodetable.Pod) bool { return other != nil && p.table.Selects(c.Pods, other) }
		if counts(o.OldPod) != counts(o.Pod) || tolerates && c.HonorTaints {
			return framework.Queue, nil
		}
	}
	return framework.QueueSkip, nil
}

// nodeChanged returns Queue if a node with all topology keys was added or deleted,
// changed its domain, or starts or ceases to count.
func (p *Plugin) nodeChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	constraints := p.constraints(nil, pod, true)
	labelled := func(n *nodetable.Node) bool {
		return n != nil && !slices.ContainsFunc(constraints, func(c nodetable.SpreadConstraint) bool {
			_, found := n.Labels.Get(c.Topology)
			return !found
		})
	}
	moved := func(c nodetable.SpreadConstraint) bool {
		was, _ := o.OldNode.Labels.Get(c.Topology)
		is, _ := o.Node.Labels.Get(c.Topology)
		return was != is || c.HonorTaints && pod.Tolerations.Admit(o.OldNode.Taints) != pod.Tolerations.Admit(o.Node.Taints) ||
			c.HonorNodes && pod.Nodes != nil && pod.Nodes.Matches(o.OldNode) != pod.Nodes.Matches(o.Node)
	}
	was, is := labelled(o.OldNode), labelled(o.Node)
	if was != is || was && slices.ContainsFunc(constraints, moved) {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}
