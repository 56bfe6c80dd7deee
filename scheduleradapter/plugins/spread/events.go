package spread

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Events that may help: a pod that counts came, went or changed its labels; a node with the
// labels did, or its taints where they count; the pod itself changed.
func (p *Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add | framework.Delete | framework.UpdatePodLabel}, Hint: p.podChanged},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodLabel | framework.UpdatePodToleration}, Hint: p.podChanged},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.Delete | framework.UpdateNodeLabel | framework.UpdateNodeTaint}, Hint: p.nodeChanged},
	}
}

// podChanged queues the pod where a constraint counts the other one, or itself,
// that did not before, or the other way round. One on its way out counts until it
// is gone: no event tells that it does not any more.
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

// nodeChanged queues the pod where a node with the labels of all constraints came
// or went, moved to another domain, or counts now or no more.
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
