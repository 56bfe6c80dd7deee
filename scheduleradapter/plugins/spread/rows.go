package spread

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// SignFilter is ok if the pods of all nodes with the topology keys count, and domains have
// several nodes. A class has the domain of each hard constraint.
func (p *Plugin) SignFilter(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	for i := range p.hard.list {
		r := &p.hard.list[i]
		if !r.whole || r.topology.SingleNodes() {
			return 0, false // each node is a class
		}
		s.Add(r.topology.Serial)
		r.counts = r.count(c.Table)
		r.limit, _ = r.limits(r.counts)
	}
	return len(p.hard.list), true
}

// FitsRow is false for a node without a topology key.
func (p *Plugin) FitsRow(_ *framework.Cycle, row nodetable.Row) bool {
	for i := range p.hard.list {
		if p.hard.list[i].topology.Of[row] == nodetable.NoDomain {
			return false
		}
	}
	return true
}

// FilterClass has the domains of a node.
func (p *Plugin) FilterClass(_ *framework.Cycle, row nodetable.Row, values []int32) {
	for i := range values {
		values[i] = p.hard.list[i].topology.Of[row]
	}
}

// FitsClass is false if the skew of a domain would exceed maxSkew.
func (p *Plugin) FitsClass(_ *framework.Cycle, values []int32) bool {
	for i, domain := range values {
		if r := &p.hard.list[i]; int64(r.counts[domain]) > r.limit {
			return false
		}
	}
	return true
}

// SignClasses is ok if the pods of all nodes with the topology keys count. A class has,
// for each soft constraint, the domain, or for the host name the number of pods on the
// node.
func (p *Plugin) SignClasses(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	if !p.findSoft(c) {
		return 0, true
	}
	for i := range p.soft.list {
		r := &p.soft.list[i]
		s.Add(r.topology.Serial)
		switch r.perNode = r.Topology.Value() == v1.LabelHostname; {
		case r.perNode:
			s.AddSymbols(r.Pods.Key)
		case !r.whole:
			return 0, false
		default:
			r.counts = r.count(c.Table)
		}
		r.base = float64(r.MaxSkew - 1)
	}
	return len(p.soft.list), true
}

// ScoreClass has the domains of a node, or the number of its pods.
func (p *Plugin) ScoreClass(c *framework.Cycle, row nodetable.Row, values []int32) {
	for i := range values {
		r := &p.soft.list[i]
		if values[i] = r.topology.Of[row]; r.perNode && values[i] != nodetable.NoDomain {
			values[i] = 0
			if !r.Pods.Empty() {
				values[i] = c.Table.Counter(r.Pods).On(row)
			}
		}
	}
}

// ScoreClasses are as those of PreScore and Score.
func (p *Plugin) ScoreClasses(_ *framework.Cycle, classes []framework.Class, scores []int64) {
	for i := range p.soft.list {
		r := &p.soft.list[i]
		r.weight = math.Log(float64(p.domainsOf(i, classes) + 2))
	}
	for i := range classes {
		sum := 0.0
		for j := range p.soft.list {
			r := &p.soft.list[j]
			pods := classes[i].Values[j]
			switch {
			case pods == nodetable.NoDomain && p.soft.everyLabel:
				sum += math.Inf(-1)
				continue
			case pods == nodetable.NoDomain:
				continue
			case !r.perNode:
				pods = r.counts[pods]
			}
			sum += float64(pods)*r.weight + r.base
		}
		if scores[i] = ignored; sum >= 0 {
			scores[i] = round(sum)
		}
	}
}

// domainsOf is the number of domains of a constraint in classes: that of the nodes to
// score, for the host name. Nodes without the label are one domain.
func (p *Plugin) domainsOf(constraint int, classes []framework.Class) (n int) {
	r := &p.soft.list[constraint]
	p.scratch = p.scratch.Emptied(len(r.topology.Nodes) + 1)
	for i := range classes {
		if p.soft.everyLabel && lacksLabel(classes[i].Values) {
			continue
		}
		domain := nodetable.Row(classes[i].Values[constraint] - nodetable.NoDomain)
		switch {
		case r.perNode:
			n += classes[i].Rows
		case !p.scratch.Has(domain):
			p.scratch.Set(domain)
			n++
		}
	}
	return n
}

func lacksLabel(values []int32) bool {
	return slices.Contains(values, nodetable.NoDomain)
}
