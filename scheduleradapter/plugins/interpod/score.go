package interpod

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// slope has the score of each domain of a topology.
type slope struct {
	topology *nodetable.Topology
	worth    []int64
	nodes    bool // each domain is one node, for ScoreClass
}

// PreScore adds up the weights of the preferred terms of both sides. It skips pods
// for which there are none.
func (p *Plugin) PreScore(c *framework.Cycle) framework.Status {
	p.slopes = p.slopes[:0]
	if p.ownOnly && len(c.Pod.PreferredAffinity) == 0 && len(c.Pod.PreferredAntiAffinity) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	for _, term := range c.Pod.PreferredAffinity {
		p.weigh(&c.Table.Counter(term.Pods).Tally, term.Topology, term.Weight)
	}
	for _, term := range c.Pod.PreferredAntiAffinity {
		p.weigh(&c.Table.Counter(term.Pods).Tally, term.Topology, -term.Weight)
	}
	if p.hardWeight > 0 {
		p.weighCarried(c, nodetable.RequiredAffinity, func(*nodetable.CarriedTerm) int64 { return p.hardWeight })
	}
	p.weighCarried(c, nodetable.PreferredAffinity, func(term *nodetable.CarriedTerm) int64 { return term.Weight })
	p.weighCarried(c, nodetable.PreferredAntiAffinity, func(term *nodetable.CarriedTerm) int64 { return -term.Weight })
	if len(p.slopes) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

// weighCarried adds the weights of terms of placed pods that match the pod.
func (p *Plugin) weighCarried(c *framework.Cycle, kind nodetable.TermKind, weight func(*nodetable.CarriedTerm) int64) {
	p.terms = c.Table.CarriedMatching(kind, c.Pod, p.terms[:0])
	for _, term := range p.terms {
		p.weigh(&term.Tally, term.Topology, weight(term))
	}
}

// weigh adds a weight to the score of each pod's domain.
func (p *Plugin) weigh(pods *nodetable.Tally, key nodetable.Symbol, weight int64) {
	topology := p.table.Topology(key)
	if !somewhere(pods, topology) {
		return
	}
	worth, counts := p.worth(topology), pods.In(topology)
	if pods.Len() < len(counts) {
		for on := range pods.Rows() {
			if domain := topology.Of[on.Row]; domain != nodetable.NoDomain {
				worth[domain] += weight * int64(on.Count)
			}
		}
		return
	}
	for domain, n := range counts {
		worth[domain] += weight * int64(n)
	}
}

// worth finds or adds the slope of a topology, and reuses memory.
func (p *Plugin) worth(topology *nodetable.Topology) []int64 {
	for i := range p.slopes {
		if p.slopes[i].topology == topology {
			return p.slopes[i].worth
		}
	}
	n := len(p.slopes)
	p.slopes = slices.Grow(p.slopes, 1)[:n+1]
	s := &p.slopes[n]
	s.topology = topology
	s.worth = slices.Grow(s.worth[:0], len(topology.Nodes))[:len(topology.Nodes)]
	clear(s.worth)
	return s.worth
}

// Score adds up the scores of a node's domains.
func (p *Plugin) Score(_ *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	clear(scores)
	for _, s := range p.slopes {
		for i, row := range rows {
			if domain := s.topology.Of[row]; domain != nodetable.NoDomain {
				scores[i] += s.worth[domain]
			}
		}
	}
	return framework.Status{}
}

// Normalize maps the lowest sum to 0 and the highest to 100, in floating point and
// truncated as in kube-scheduler; all are 0 if they are equal.
func (p *Plugin) Normalize(_ *framework.Cycle, _ []nodetable.Row, scores []int64) framework.Status {
	least, most := framework.Extremes(scores)
	if least == most {
		clear(scores)
		return framework.Status{}
	}
	p.shares.Apply(scores, least, most, func(score int64) int64 {
		return int64(framework.MaxScore * (float64(score-least) / float64(most-least)))
	})
	return framework.Status{}
}
