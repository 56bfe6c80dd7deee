package spread

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// scale is how the pods of a domain become a score.
type scale struct {
	// weight of each pod, and what the domain has without any.
	weight, base float64
	// perNode says that the topology is the node itself: its own pods count,
	// whatever the constraint says of which nodes do.
	perNode bool
}

// PreScore skips pods that would not rather be kept apart.
func (p *Plugin) PreScore(c *framework.Cycle) framework.Status {
	p.soft.constraints = p.constraints(p.soft.constraints[:0], c.Pod, false)
	if len(p.soft.constraints) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	p.soft.prepare(c, len(c.Pod.Spread) > 0 || !p.system)
	for i := range p.soft.list {
		r := &p.soft.list[i]
		r.perNode = r.Topology.Value() == v1.LabelHostname
		if r.perNode {
			r.counts = r.countNodes(c.Table)
		} else {
			r.counts = r.count(c.Table)
		}
		r.base = float64(r.MaxSkew - 1)
		r.weight = math.Log(float64(p.domains(c, r) + 2))
	}
	return framework.Status{}
}

// countNodes is the number of pods on each row.
func (r *rule) countNodes(t *nodetable.Table) []int32 {
	r.counted = zeros(r.counted, t.Rows())
	if !r.Pods.Empty() {
		for _, pods := range t.Counter(r.Pods).Rows() {
			r.counted[pods.Row] = pods.Count
		}
	}
	return r.counted
}

// domains is the number of domains among the nodes to be scored. Nodes without
// the label, where they are scored, are one.
func (p *Plugin) domains(c *framework.Cycle, r *rule) (n int) {
	if r.perNode {
		for _, row := range c.Rows {
			if p.soft.labelled.Has(row) {
				n++
			}
		}
		return n
	}
	seen := p.scratch.Emptied(len(r.topology.Nodes) + 1)
	p.scratch = seen
	for _, row := range c.Rows {
		if p.soft.labelled.Has(row) {
			seen.Set(nodetable.Row(r.topology.Of[row] - nodetable.NoDomain))
		}
	}
	return seen.Count()
}

// Score adds up the pods around a node, those in few domains counting less: the
// lower the better.
func (p *Plugin) Score(_ *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	list := p.soft.list
	for i, row := range rows {
		sum := 0.0
		for k := range list {
			r := &list[k]
			place := r.topology.Of[row]
			if place == nodetable.NoDomain {
				continue
			}
			if r.perNode {
				place = int32(row)
			}
			sum += float64(r.counts[place])*r.weight + r.base
		}
		scores[i] = int64(math.Round(sum))
	}
	return framework.Status{}
}

// Normalize gives the nodes with the fewest pods around the most. Nodes without a
// label they should have get 0.
func (p *Plugin) Normalize(_ *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	least, most := int64(math.MaxInt64), int64(0)
	for i, row := range rows {
		if p.soft.labelled.Has(row) {
			least, most = min(least, scores[i]), max(most, scores[i])
		}
	}
	last, normalized := int64(-1), int64(0)
	for i, row := range rows {
		switch {
		case !p.soft.labelled.Has(row):
			scores[i] = 0
			continue
		case most == 0:
			scores[i] = framework.MaxScore
			continue
		case scores[i] != last:
			last = scores[i]
			normalized = framework.MaxScore * (most + least - last) / most
		}
		scores[i] = normalized
	}
	return framework.Status{}
}
