// Package taints is the plugin TaintToleration: pods keep off nodes whose taints
// they do not tolerate, and prefer those with fewer taints that would rather not
// have them.
package taints

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "TaintToleration"

var reasons = []string{"node(s) had untolerated taint(s)"}

// Plugin is TaintToleration.
type Plugin struct {
	table  *nodetable.Table
	scores *nodetable.Recent[nodetable.Symbol, repulsion]
}

// repulsion is for pods with the same tolerations how many PreferNoSchedule
// taints of each node they do not tolerate, as of a version of the taints.
type repulsion struct {
	version uint64
	taints  []int64
}

// Distinct tolerations whose scores are remembered, a number a node each.
const kept = 64

// New makes the plugin; it takes no arguments.
func New(_ any, env framework.Env) (framework.Plugin, error) {
	return &Plugin{env.Table, nodetable.NewRecent[nodetable.Symbol, repulsion](kept)}, nil
}

// Name of the plugin.
func (*Plugin) Name() string { return Name }

// IgnoresPods marks that only the node counts.
func (*Plugin) IgnoresPods() {}

// Filter takes out nodes with a NoSchedule or NoExecute taint the pod does not
// tolerate.
func (*Plugin) Filter(c *framework.Cycle) framework.Status {
	c.RejectAll(c.Table.Tainted(&c.Pod.Tolerations), 1, true)
	return framework.Status{}
}

// Reasons has one text for all taints, so that nodes count together.
func (*Plugin) Reasons(*nodetable.Pod, uint32) []string { return reasons }

// Score counts the PreferNoSchedule taints that are not tolerated.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	taints := p.repulsions(&c.Pod.Tolerations)
	nodetable.Gather(scores, taints, rows)
	return framework.Status{}
}

func (p *Plugin) repulsions(tolerations *nodetable.Tolerations) []int64 {
	r, known := p.scores.At(tolerations.Key)
	if known && r.version == p.table.Versions.Taints {
		return r.taints
	}
	r.version = p.table.Versions.Taints
	r.taints = slices.Grow(r.taints[:0], p.table.Rows())[:p.table.Rows()]
	clear(r.taints)
	for taint, rows := range p.table.Taints {
		if taint.Effect == v1.TaintEffectPreferNoSchedule && !tolerations.ToleratePreferring(taint) {
			for _, row := range rows {
				r.taints[row]++
			}
		}
	}
	return r.taints
}

// Normalize gives the node with the most such taints 0, one without any 100.
func (*Plugin) Normalize(_ *framework.Cycle, _ []nodetable.Row, scores []int64) framework.Status {
	most := slices.Max(scores)
	for i, taints := range scores {
		if scores[i] = framework.MaxScore; most > 0 {
			scores[i] -= framework.MaxScore * taints / most
		}
	}
	return framework.Status{}
}

// Events are: a node that came to be tolerated, and more tolerations of the pod.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeTaint}, Hint: nodeChanged},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodToleration}},
	}
}

func nodeChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	admitted := o.OldNode != nil && pod.Tolerations.Admit(o.OldNode.Taints)
	if !admitted && pod.Tolerations.Admit(o.Node.Taints) {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}
