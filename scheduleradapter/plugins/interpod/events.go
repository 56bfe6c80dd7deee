package interpod

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Events are: a pod was added, deleted or relabeled; a node was added or relabeled; the
// labels of the pod changed.
func (p *Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add | framework.Delete | framework.UpdatePodLabel}, Hint: p.podChanged},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodLabel}},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeLabel}, Hint: p.nodeChanged},
	}
}

// podChanged returns Queue if the other pod newly matches an affinity term, or was
// the last that does and the pod matches its own terms; or if it no longer matches
// an anti-affinity term, or no longer has one that matches the pod.
func (p *Plugin) podChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	ends := func(m *nodetable.Matcher) bool { return p.means(m, o.OldPod) && !p.means(m, o.Pod) }
	if m := pod.Companions; m != nil {
		begins := p.means(m, o.Pod) && !p.means(m, o.OldPod)
		if begins || ends(m) && p.table.Matches(m, pod) {
			return framework.Queue, nil
		}
	}
	for _, term := range pod.AntiAffinity {
		if ends(term.Pods) {
			return framework.Queue, nil
		}
	}
	if o.OldPod != nil && o.Pod == nil {
		for _, term := range o.OldPod.AntiAffinity {
			if p.table.Matches(term.Pods, pod) {
				return framework.Queue, nil
			}
		}
	}
	return framework.QueueSkip, nil
}

func (p *Plugin) means(m *nodetable.Matcher, pod *nodetable.Pod) bool {
	return pod != nil && p.table.Matches(m, pod)
}

// nodeChanged returns Queue if a new node has the topology keys of the affinity
// terms, or if the value of a topology key changed.
func (p *Plugin) nodeChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	lacking := func(term *nodetable.Term) bool {
		_, found := o.Node.Labels.Get(term.Topology)
		return !found
	}
	moved := func(term *nodetable.Term) bool {
		was, _ := o.OldNode.Labels.Get(term.Topology)
		is, _ := o.Node.Labels.Get(term.Topology)
		return was != is
	}
	if o.OldNode == nil && slices.ContainsFunc(pod.Affinity, lacking) {
		return framework.QueueSkip, nil
	}
	if o.OldNode == nil || slices.ContainsFunc(pod.Affinity, moved) || slices.ContainsFunc(pod.AntiAffinity, moved) {
		return framework.Queue, nil
	}
	for _, carried := range p.table.CarriedMatching(nodetable.RequiredAntiAffinity, pod, nil) {
		if moved(carried.Term) {
			return framework.Queue, nil
		}
	}
	return framework.QueueSkip, nil
}
