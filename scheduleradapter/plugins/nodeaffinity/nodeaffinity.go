// Package nodeaffinity is the plugin NodeAffinity: node selector, required and
// preferred node affinity of the pod, and addedAffinity of the profile.
package nodeaffinity

import (
	"fmt"

	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodeAffinity"

// Reasons of rejections.
const (
	mismatchesPod uint32 = iota
	mismatchesProfile
)

// Plugin is NodeAffinity.
type Plugin struct {
	// required and preferred terms of addedAffinity; nil: there are none.
	required  *nodetable.NodeSelector
	preferred []nodetable.WeightedNodes
	others    nodetable.Bits // buffer
	shares    framework.Mapping
	// selected are the rows that addedAffinity and the pod of SignFilter match; nil: all
	// rows. weighted are the preferred terms of the pod of SignClasses with their rows.
	selected [2]nodetable.Bits
	weighted []weightedRows
}

type weightedRows struct {
	weight int32
	rows   nodetable.Bits
}

// New makes the plugin; args are a NodeAffinityArgs.
func New(args any, _ framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.NodeAffinityArgs)
	if !ok {
		return nil, fmt.Errorf("%s: arguments are %T", Name, args)
	}
	p := &Plugin{}
	if affinity := a.AddedAffinity; affinity != nil {
		p.required = nodetable.NewNodeSelector(nil, affinity.RequiredDuringSchedulingIgnoredDuringExecution)
		p.preferred = nodetable.NewWeightedNodes(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return p, nil
}

func (*Plugin) Name() string { return Name }

// IgnoresPods marks that the result depends on the node only.
func (*Plugin) IgnoresPods() {}

// PreFilter narrows the nodes to those that metadata.name terms name, if each term
// has one.
func (p *Plugin) PreFilter(c *framework.Cycle) framework.Status {
	if c.Pod.Nodes == nil {
		if p.required == nil {
			return framework.Status{Code: framework.Skip}
		}
		return framework.Status{}
	}
	names, narrowed := c.Pod.Nodes.Names()
	switch {
	case !narrowed:
	case len(names) == 0:
		return framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: "pod affinity terms conflict"}
	default:
		c.Narrow(names)
	}
	return framework.Status{}
}

// Filter rejects nodes that addedAffinity or the pod does not match.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	p.rejectOthers(c, p.required, mismatchesProfile)
	p.rejectOthers(c, c.Pod.Nodes, mismatchesPod)
	return framework.Status{}
}

func (p *Plugin) rejectOthers(c *framework.Cycle, selector *nodetable.NodeSelector, reason uint32) {
	if selector == nil {
		return
	}
	p.others = p.others.Copied(c.Feasible)
	p.others.AndNot(c.Table.Select(selector))
	c.RejectAll(p.others, reason, true)
}

func (*Plugin) Reasons(_ *nodetable.Pod, reason uint32) []string {
	return []string{[...]string{
		mismatchesPod:     "node(s) didn't match Pod's node affinity/selector",
		mismatchesProfile: "node(s) didn't match scheduler-enforced node affinity",
	}[reason]}
}

// PreScore skips pods if there are no preferred terms.
func (p *Plugin) PreScore(c *framework.Cycle) framework.Status {
	if len(c.Pod.PreferredNodes) == 0 && len(p.preferred) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

// Score is the sum of the weights of the matched preferred terms.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	clear(scores)
	for _, terms := range [...][]nodetable.WeightedNodes{p.preferred, c.Pod.PreferredNodes} {
		for _, term := range terms {
			meant := c.Table.Select(term.Nodes)
			for i, row := range rows {
				if meant.Has(row) {
					scores[i] += term.Weight
				}
			}
		}
	}
	return framework.Status{}
}

// Normalize maps the highest sum to 100.
func (p *Plugin) Normalize(_ *framework.Cycle, _ []nodetable.Row, scores []int64) framework.Status {
	least, most := framework.Extremes(scores)
	if most != 0 {
		p.shares.Apply(scores, least, most, func(sum int64) int64 { return framework.MaxScore * sum / most })
	}
	return framework.Status{}
}

// SignFilter adds the selector of the pod.
func (p *Plugin) SignFilter(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	p.selected = [2]nodetable.Bits{}
	if p.required != nil {
		p.selected[mismatchesProfile] = c.Table.Select(p.required)
	}
	if c.Pod.Nodes != nil {
		s.AddSymbols(c.Pod.Nodes.Key)
		p.selected[mismatchesPod] = c.Table.Select(c.Pod.Nodes)
	}
	return 0, true
}

// FitsRow is false for a node that addedAffinity or the pod does not match.
func (p *Plugin) FitsRow(_ *framework.Cycle, row nodetable.Row) bool {
	for _, rows := range p.selected {
		if rows != nil && !rows.Has(row) {
			return false
		}
	}
	return true
}

// mostWeight bounds the sum of the weights in a class.
const mostWeight = 1 << 24

// SignClasses adds the preferred terms of the pod.
func (p *Plugin) SignClasses(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	p.weighted = p.weighted[:0]
	sum := int64(0)
	for _, terms := range [...][]nodetable.WeightedNodes{p.preferred, c.Pod.PreferredNodes} {
		for _, term := range terms {
			if sum += max(term.Weight, -term.Weight); sum > mostWeight {
				return 0, false
			}
			s.AddSymbols(term.Nodes.Key)
			s.Add(term.Weight)
			p.weighted = append(p.weighted, weightedRows{int32(term.Weight), c.Table.Select(term.Nodes)})
		}
	}
	return min(len(p.weighted), 1), true
}

// ScoreClass is the sum of the weights of the matched preferred terms.
func (p *Plugin) ScoreClass(_ *framework.Cycle, row nodetable.Row, values []int32) {
	for _, term := range p.weighted {
		if term.rows.Has(row) {
			values[0] += term.weight
		}
	}
}

// ScoreClasses are these sums.
func (*Plugin) ScoreClasses(_ *framework.Cycle, classes []framework.Class, scores []int64) {
	for i := range classes {
		scores[i] = int64(classes[i].Values[0])
	}
}

// Events are: a node that now matches.
func (p *Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeLabel}, Hint: p.nodeChanged},
	}
}

func (p *Plugin) nodeChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	means := func(n *nodetable.Node) bool {
		return (p.required == nil || p.required.Matches(n)) && (pod.Nodes == nil || pod.Nodes.Matches(n))
	}
	if means(o.Node) && (o.OldNode == nil || !means(o.OldNode)) {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}
