package interpod

import (
	"cmp"
	"math"
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// limits are the required terms of both sides by topology, for the pod of SignFilter.
type limits struct {
	// classes are the topologies whose domains have several nodes; a class has the domain
	// of each.
	classes []*nodetable.Topology
	// first: the pod needs no companion.
	first bool
	// rejecting are the numbers of the pods that reject a domain.
	rejecting []rejecting
}

type rejecting struct {
	topology *nodetable.Topology
	value    int // in the values of a class; -1: each domain is one node
	counts   []int32
}

// SignFilter has the required terms. It is not ok if affinity is by host name: whether a
// companion is needed depends on all nodes.
func (p *Plugin) SignFilter(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	l := &p.limits
	l.classes, l.rejecting = l.classes[:0], l.rejecting[:0]
	if len(c.Pod.Affinity) > 0 {
		companions := c.Table.Counter(c.Pod.Companions)
		l.first = p.isFirst(c, companions)
		for _, term := range c.Pod.Affinity {
			topology := c.Table.Topology(term.Topology)
			if topology.SingleNodes() || len(l.classes) == mostTopologies {
				return 0, false
			}
			l.classes = append(l.classes, topology)
		}
	}
	affinities, nodes := len(l.classes), false
	add := func(pods *nodetable.Tally, key nodetable.Symbol) {
		topology := c.Table.Topology(key)
		r := rejecting{topology: topology, value: -1, counts: pods.In(topology)}
		if r.topology.SingleNodes() {
			nodes = true
		} else if !slices.Contains(l.classes[affinities:], topology) {
			l.classes = append(l.classes, topology)
		}
		l.rejecting = append(l.rejecting, r)
	}
	for _, term := range c.Pod.AntiAffinity {
		add(&c.Table.Counter(term.Pods).Tally, term.Topology)
	}
	for _, term := range p.refusing(c) {
		add(&term.Tally, term.Topology)
	}
	slices.SortFunc(l.classes[affinities:], func(a, b *nodetable.Topology) int { return cmp.Compare(a.Serial, b.Serial) })
	for i := range l.rejecting {
		if r := &l.rejecting[i]; !r.topology.SingleNodes() {
			r.value = affinities + slices.Index(l.classes[affinities:], r.topology)
		}
	}
	s.Add(int64(affinities))
	for _, topology := range l.classes {
		s.Add(topology.Serial)
	}
	if nodes {
		for _, term := range c.Pod.AntiAffinity {
			s.AddSymbols(term.Key)
		}
		p.signNodes(c, s)
	}
	return len(l.classes), len(l.classes) <= mostTopologies
}

// mostTopologies bounds the topologies in a class.
const mostTopologies = 4

// signNodes adds what the number of matching pods on a node depends on.
func (p *Plugin) signNodes(c *framework.Cycle, s *framework.Signature) {
	s.AddSymbols(c.Pod.LabelSet())
	s.Add(int64(c.Table.Versions.Namespaces))
}

// FitsRow has the anti-affinity by host name, and the keys of affinity.
func (p *Plugin) FitsRow(c *framework.Cycle, row nodetable.Row) bool {
	l := &p.limits
	for _, topology := range l.classes[:len(c.Pod.Affinity)] {
		if topology.Of[row] == nodetable.NoDomain {
			return false
		}
	}
	for i := range l.rejecting {
		if r := &l.rejecting[i]; r.value < 0 && r.rejects(r.topology.Of[row]) {
			return false
		}
	}
	return true
}

func (r *rejecting) rejects(domain int32) bool {
	return domain != nodetable.NoDomain && r.counts[domain] > 0
}

// FilterClass has the domains of a node.
func (p *Plugin) FilterClass(_ *framework.Cycle, row nodetable.Row, values []int32) {
	for i := range values {
		values[i] = p.limits.classes[i].Of[row]
	}
}

// FitsClass has the terms of domains with several nodes.
func (p *Plugin) FitsClass(c *framework.Cycle, values []int32) bool {
	l := &p.limits
	if len(c.Pod.Affinity) > 0 && !l.first {
		companions := &c.Table.Counter(c.Pod.Companions).Tally
		for i := range c.Pod.Affinity {
			if companions.In(l.classes[i])[values[i]] == 0 {
				return false
			}
		}
	}
	for i := range l.rejecting {
		if r := &l.rejecting[i]; r.value >= 0 && r.rejects(values[r.value]) {
			return false
		}
	}
	return true
}

// SignClasses has the preferred terms. A class has the domain of each topology, or the
// score of the node if each domain is one node.
func (p *Plugin) SignClasses(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	if !p.PreScore(c).OK() {
		return 0, true
	}
	nodes := false
	slices.SortFunc(p.slopes, func(a, b slope) int { return cmp.Compare(a.topology.Serial, b.topology.Serial) })
	for i := range p.slopes {
		t := p.slopes[i].topology
		s.Add(t.Serial)
		if p.slopes[i].nodes = t.SingleNodes(); p.slopes[i].nodes {
			nodes = true
			s.Add(-1)
		}
	}
	if nodes {
		for _, terms := range [...][]*nodetable.Term{c.Pod.PreferredAffinity, c.Pod.PreferredAntiAffinity} {
			s.Add(int64(len(terms)))
			for _, term := range terms {
				s.AddSymbols(term.Key)
			}
		}
		p.signNodes(c, s)
	}
	return len(p.slopes), len(p.slopes) <= mostTopologies
}

// ScoreClass has the domains of a node, or the score of the node. A score out of the
// range of a value is cut off, as no pods of a node add up to that.
func (p *Plugin) ScoreClass(_ *framework.Cycle, row nodetable.Row, values []int32) {
	for i := range values {
		s := &p.slopes[i]
		switch values[i] = s.topology.Of[row]; {
		case !s.nodes:
		case values[i] == nodetable.NoDomain:
			values[i] = 0
		default:
			values[i] = int32(max(math.MinInt32, min(s.worth[values[i]], math.MaxInt32)))
		}
	}
}

// ScoreClasses are as those of Score.
func (p *Plugin) ScoreClasses(_ *framework.Cycle, classes []framework.Class, scores []int64) {
	for i := range classes {
		for j, value := range classes[i].Values {
			switch s := &p.slopes[j]; {
			case s.nodes:
				scores[i] += int64(value)
			case value != nodetable.NoDomain:
				scores[i] += s.worth[value]
			}
		}
	}
}
