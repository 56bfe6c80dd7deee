// Package taints is the plugin TaintToleration: it rejects nodes with untolerated
// taints, and scores nodes by the number of untolerated PreferNoSchedule taints.
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
	// repelled: a node has an untolerated PreferNoSchedule taint.
	repelled bool
	shares   framework.Mapping
}

// repulsion caches the number of untolerated PreferNoSchedule taints by node for
// pods with the same tolerations, for a version of the taints.
type repulsion struct {
	version uint64
	taints  []int32
	any     bool
}

const bytesPerRow = 4 // of a repulsion

func New(_ any, env framework.Env) (framework.Plugin, error) {
	return &Plugin{table: env.Table, scores: nodetable.NewRecent[nodetable.Symbol, repulsion](1)}, nil
}

func (*Plugin) Name() string { return Name }

// IgnoresPods marks that the result depends on the node only.
func (*Plugin) IgnoresPods() {}

// Filter rejects nodes with an untolerated NoSchedule or NoExecute taint.
func (*Plugin) Filter(c *framework.Cycle) framework.Status {
	c.RejectAll(c.Table.Tainted(&c.Pod.Tolerations), 1, true)
	return framework.Status{}
}

// Reasons has one text for all taints, as in kube-scheduler.
func (*Plugin) Reasons(*nodetable.Pod, uint32) []string { return reasons }

// Score counts the untolerated PreferNoSchedule taints.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	r := p.repulsions(&c.Pod.Tolerations)
	if p.repelled = r.any; r.any {
		nodetable.Gather(scores, r.taints, rows)
	}
	return framework.Status{}
}

func (p *Plugin) repulsions(tolerations *nodetable.Tolerations) *repulsion {
	p.scores.Bound(p.table.KeptMemos(bytesPerRow))
	r, known := p.scores.At(tolerations.Key)
	if known && r.version == p.table.Versions.Taints {
		return r
	}
	r.version, r.any = p.table.Versions.Taints, false
	for taint, rows := range p.table.Taints {
		if taint.Effect == v1.TaintEffectPreferNoSchedule && !tolerations.ToleratePreferring(taint) {
			if !r.any {
				r.any = true
				r.taints = slices.Grow(r.taints[:0], p.table.Rows())[:p.table.Rows()]
				clear(r.taints)
			}
			for _, row := range rows {
				r.taints[row]++
			}
		}
	}
	return r
}

// Normalize maps the highest count to 0 and no taint to 100.
func (p *Plugin) Normalize(_ *framework.Cycle, _ []nodetable.Row, scores []int64) framework.Status {
	if !p.repelled {
		for i := range scores {
			scores[i] = framework.MaxScore
		}
		return framework.Status{}
	}
	least, most := framework.Extremes(scores)
	p.shares.Apply(scores, least, most, func(taints int64) int64 {
		return framework.MaxScore - framework.MaxScore*taints/max(most, 1)
	})
	return framework.Status{}
}

// SignFilter adds the tolerations.
func (*Plugin) SignFilter(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	s.AddSymbols(c.Pod.Tolerations.Key)
	return 0, true
}

// FitsRow is false for a node with an untolerated NoSchedule or NoExecute taint.
func (*Plugin) FitsRow(c *framework.Cycle, row nodetable.Row) bool {
	return c.Pod.Tolerations.Admit(c.Table.Node(row).Taints)
}

// SignClasses adds the tolerations. All scores are equal if no node has a taint of the
// effect PreferNoSchedule.
func (*Plugin) SignClasses(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	if !c.Table.PrefersNoSchedule() {
		return 0, true
	}
	s.AddSymbols(c.Pod.Tolerations.Key)
	return 1, true
}

// ScoreClass is the number of the distinct untolerated PreferNoSchedule taints.
func (*Plugin) ScoreClass(c *framework.Cycle, row nodetable.Row, values []int32) {
	taints := c.Table.Node(row).Taints
	for i, taint := range taints {
		if taint.Effect == v1.TaintEffectPreferNoSchedule && !c.Pod.Tolerations.ToleratePreferring(taint) && !slices.Contains(taints[:i], taint) {
			values[0]++
		}
	}
}

// ScoreClasses are these numbers.
func (p *Plugin) ScoreClasses(_ *framework.Cycle, classes []framework.Class, scores []int64) {
	p.repelled = true
	for i := range classes {
		scores[i] = int64(classes[i].Values[0])
	}
}

// Events are: a node whose taints are now tolerated; more tolerations of the pod.
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
