// Package nodelabel is the plugin NodeLabel of legacy Policies: it filters and
// scores nodes by the presence of label keys.
package nodelabel

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodeLabel"

// Plugin is NodeLabel.
type Plugin struct {
	required  *nodetable.NodeSelector
	preferred []*nodetable.NodeSelector // by label
	scratch   nodetable.Bits
}

// New makes the plugin; args are a NodeLabelArgs.
func New(args any, _ framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.NodeLabelArgs)
	if !ok {
		return nil, fmt.Errorf("%s: arguments are %T", Name, args)
	}
	p := &Plugin{}
	required := append(expressions(v1.NodeSelectorOpExists, a.PresentLabels), expressions(v1.NodeSelectorOpDoesNotExist, a.AbsentLabels)...)
	p.required = selector(required...)
	for _, e := range append(expressions(v1.NodeSelectorOpExists, a.PresentLabelsPreference), expressions(v1.NodeSelectorOpDoesNotExist, a.AbsentLabelsPreference)...) {
		p.preferred = append(p.preferred, selector(e))
	}
	return p, nil
}

func expressions(op v1.NodeSelectorOperator, labels []string) (list []v1.NodeSelectorRequirement) {
	for _, label := range labels {
		list = append(list, v1.NodeSelectorRequirement{Key: label, Operator: op})
	}
	return list
}

// selector is nil without expressions.
func selector(expressions ...v1.NodeSelectorRequirement) *nodetable.NodeSelector {
	if len(expressions) == 0 {
		return nil
	}
	return nodetable.NewNodeSelectorTerm(&v1.NodeSelectorTerm{MatchExpressions: expressions})
}

func (*Plugin) Name() string { return Name }

// IgnoresPods marks that the result depends on the node only.
func (*Plugin) IgnoresPods() {}

// Filter rejects nodes that lack a required label or have a forbidden one.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	if p.required != nil {
		p.scratch = p.scratch.Copied(c.Feasible)
		p.scratch.AndNot(c.Table.Select(p.required))
		c.RejectAll(p.scratch, 0, true)
	}
	return framework.Status{}
}

func (*Plugin) Reasons(*nodetable.Pod, uint32) []string {
	return []string{"node(s) didn't have the requested labels"}
}

// Score is the share of the preferences that a node meets.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	clear(scores)
	for _, s := range p.preferred {
		met := c.Table.Select(s)
		for i, row := range rows {
			if met.Has(row) {
				scores[i] += framework.MaxScore
			}
		}
	}
	if n := int64(len(p.preferred)); n > 1 {
		for i := range scores {
			scores[i] /= n
		}
	}
	return framework.Status{}
}

// Events are: a node was added or relabeled.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeLabel}},
	}
}
