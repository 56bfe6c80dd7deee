package interpod

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Events that may help: a pod came, went or changed its labels; a node came or changed its
// labels; the pod itself changed its labels.
func (p *Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add | framework.Delete | framework.UpdatePodLabel}, Hint: p.podChanged},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodLabel}},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeLabel}, Hint: p.nodeChanged},
	}
}

// podChanged queues the pod where it came to have a companion, or lost the last
// one and may be the first of them; and where there is one pod less to keep away
// from, or one less that keeps away from it.
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

// nodeChanged queues the pod where a node came that has the labels its affinity
// asks for, and where a node changed one of the labels by which pods keep together
// or apart.
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
