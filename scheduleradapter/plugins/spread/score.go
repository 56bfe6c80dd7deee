package spread

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// scale converts the pods of a domain to a score.
type scale struct {
	// weight of each pod, and base of the domain.
	weight, base float64
	// perNode: the topology key is the host name; the pods of each node are counted
	// regardless of the node inclusion policies.
	perNode bool
}

// PreScore skips pods without soft constraints.
func (p *Plugin) PreScore(c *framework.Cycle) framework.Status {
	if !p.findSoft(c) {
		return framework.Status{Code: framework.Skip}
	}
	p.scored = p.scored.Copied(c.Feasible)
	p.scored.And(p.soft.labelled)
	for i := range p.soft.list {
		r := &p.soft.list[i]
		r.perNode = r.Topology.Value() == v1.LabelHostname
		domains := 0
		if r.perNode {
			r.counts, domains = r.countNodes(c.Table), p.scored.Count()
		} else {
			r.counts, domains = r.count(c.Table), p.domains(r)
		}
		r.base = float64(r.MaxSkew - 1)
		r.weight = math.Log(float64(domains + 2))
	}
	return framework.Status{}
}

// findSoft prepares the soft constraints of the pod; false: there are none.
func (p *Plugin) findSoft(c *framework.Cycle) bool {
	p.soft.constraints = p.constraints(p.soft.constraints[:0], c.Pod, false)
	if len(p.soft.constraints) == 0 {
		return false
	}
	p.soft.prepare(c, len(c.Pod.Spread) > 0 || !p.system)
	return true
}

// countNodes is the number of pods by row.
func (r *rule) countNodes(t *nodetable.Table) []int32 {
	r.counted = zeros(r.counted, t.Rows())
	if !r.Pods.Empty() {
		for pods := range t.Counter(r.Pods).Rows() {
			r.counted[pods.Row] = pods.Count
		}
	}
	return r.counted
}

// domains is the number of domains of the nodes to score. Nodes without the label,
// if scored, are one domain.
func (p *Plugin) domains(r *rule) (n int) {
	limit := r.topology.Live
	if !p.soft.everyLabel {
		limit++
	}
	p.scratch = p.scratch.Emptied(len(r.topology.Nodes) + 1)
	for row := range p.scored.All() {
		domain := nodetable.Row(r.topology.Of[row] - nodetable.NoDomain)
		if p.scratch.Has(domain) {
			continue
		}
		p.scratch.Set(domain)
		if n++; n == limit {
			break
		}
	}
	return n
}

// ignored is the score of a node without a required label before Normalize.
const ignored = -1

// Score adds up the pods of a node's domains, weighted by the logarithm of the
// number of domains; lower is better.
func (p *Plugin) Score(_ *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	p.sums = slices.Grow(p.sums[:0], len(rows))[:len(rows)]
	clear(p.sums)
	for i := range p.soft.list {
		p.soft.list[i].score(rows, p.sums, p.soft.everyLabel)
	}
	for i, sum := range p.sums {
		if scores[i] = ignored; sum >= 0 {
			scores[i] = round(sum)
		}
	}
	return framework.Status{}
}

// score adds the part of a rule to each row's sum.
func (r *rule) score(rows []nodetable.Row, sums []float64, everyLabel bool) {
	of, counts, weight, base := r.topology.Of, r.counts, r.weight, r.base
	unlabelled := 0.0
	if everyLabel {
		unlabelled = math.Inf(-1)
	}
	for i, row := range rows {
		place := of[row]
		if place == nodetable.NoDomain {
			sums[i] += unlabelled
			continue
		}
		if r.perNode {
			place = int32(row)
		}
		sums[i] += float64(counts[place])*weight + base
	}
}

// round is math.Round for numbers that are not negative.
func round(x float64) int64 {
	n := int64(x)
	if x-float64(n) >= 0.5 {
		n++
	}
	return n
}

// Normalize gives nodes with the lowest sum the highest score. Nodes without a
// required label get 0.
func (p *Plugin) Normalize(_ *framework.Cycle, _ []nodetable.Row, scores []int64) framework.Status {
	lowest, most := framework.Extremes(scores)
	least := lowest
	if lowest == ignored {
		least = math.MaxInt64
		for _, score := range scores {
			if score != ignored {
				least = min(least, score)
			}
		}
	}
	p.shares.Apply(scores, lowest, most, func(score int64) int64 { return normalize(score, least, max(most, 0)) })
	return framework.Status{}
}

func normalize(score, least, most int64) int64 {
	switch {
	case score == ignored:
		return 0
	case most == 0:
		return framework.MaxScore
	}
	return framework.MaxScore * (most + least - score) / most
}
