// Package spread is the plugin PodTopologySpread: topology spread constraints by
// zone, node or another node label.
package spread

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "PodTopologySpread"

// Reasons of rejections.
const (
	skewed = 1 << iota
	unlabelled
)

var reasons = [...][]string{
	skewed:     {"node(s) didn't match pod topology spread constraints"},
	unlabelled: {"node(s) didn't match pod topology spread constraints (missing required label)"},
}

// Plugin is PodTopologySpread.
type Plugin struct {
	table *nodetable.Table
	// defaults are for pods without constraints.
	defaults []nodetable.SpreadConstraint
	// system: the defaults are kube-scheduler's, which also score nodes without all
	// topology keys.
	system     bool
	hard, soft rules          // of the pod of the cycle
	scored     nodetable.Bits // nodes with the required labels
	sums       []float64      // by scored row
	shares     framework.Mapping
	scratch    nodetable.Bits
}

// systemDefaults are kube-scheduler's.
func systemDefaults() []v1.TopologySpreadConstraint {
	return []v1.TopologySpreadConstraint{
		{TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.ScheduleAnyway, MaxSkew: 3},
		{TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.ScheduleAnyway, MaxSkew: 5},
	}
}

// New makes the plugin; args are a PodTopologySpreadArgs with its defaults.
func New(args any, env framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.PodTopologySpreadArgs)
	if !ok {
		return nil, fmt.Errorf("%s: arguments are %T", Name, args)
	}
	p := &Plugin{table: env.Table, system: a.DefaultingType == config.SystemDefaulting}
	constraints := a.DefaultConstraints
	if p.system {
		constraints = systemDefaults()
	}
	for i := range constraints {
		p.defaults = append(p.defaults, nodetable.NewSpreadConstraint(&constraints[i], "", nil))
	}
	return p, nil
}

func (*Plugin) Name() string { return Name }

// constraints appends the pod's hard or soft constraints: its own, or the defaults
// over the pods of its service or controller.
func (p *Plugin) constraints(all []nodetable.SpreadConstraint, pod *nodetable.Pod, hard bool) []nodetable.SpreadConstraint {
	if len(pod.Spread) > 0 {
		return appendKind(all, pod.Spread, hard)
	}
	all = appendKind(all, p.defaults, hard)
	if len(all) == 0 {
		return all
	}
	siblings := p.table.Siblings(pod)
	if siblings == nil {
		return all[:0]
	}
	for i := range all {
		all[i].Pods, all[i].Self = siblings, p.table.Selects(siblings, pod)
	}
	return all
}

func appendKind(all, from []nodetable.SpreadConstraint, hard bool) []nodetable.SpreadConstraint {
	for i := range from {
		if from[i].Hard == hard {
			all = append(all, from[i])
		}
	}
	return all
}

// PreFilter skips pods without hard constraints.
func (p *Plugin) PreFilter(c *framework.Cycle) framework.Status {
	p.hard.constraints = p.constraints(p.hard.constraints[:0], c.Pod, true)
	if len(p.hard.constraints) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	p.hard.prepare(c, true)
	for i := range p.hard.list {
		p.hard.list[i].countDomains()
	}
	return framework.Status{}
}

// Filter rejects, for each constraint, nodes without its label, and nodes in
// domains whose skew would exceed maxSkew.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	for i := range p.hard.list {
		r := &p.hard.list[i]
		p.scratch = p.scratch.Copied(c.Feasible)
		p.scratch.AndNot(r.topology.Labelled)
		c.RejectAll(p.scratch, unlabelled, true)
		counts := r.count(c.Table)
		limit, most := r.limits(counts)
		if most <= limit {
			continue
		}
		of := r.topology.Of
		for row := range c.Feasible.All() {
			if int64(counts[of[row]]) > limit {
				c.Reject(row, skewed, false)
			}
		}
	}
	return framework.Status{}
}

func (*Plugin) Reasons(_ *nodetable.Pod, reason uint32) []string { return reasons[reason] }
