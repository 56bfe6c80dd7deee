package framework

import (
	"maps"
	"slices"
)

// Clone copies the result of a cycle, which the next Begin does not change.
func (c *Cycle) Clone() *Cycle {
	b := *c
	b.Feasible, b.Evaluated = slices.Clone(c.Feasible), slices.Clone(c.Evaluated)
	b.Rows, b.Totals, b.rejections = slices.Clone(c.Rows), slices.Clone(c.Totals), slices.Clone(c.rejections)
	b.skipScore, b.narrowing, b.further = slices.Clone(c.skipScore), slices.Clone(c.narrowing), maps.Clone(c.further)
	b.scores = make([][]int64, len(c.scores))
	for i, scores := range c.scores {
		b.scores[i] = slices.Clone(scores)
	}
	b.requests, b.Timing.Spans = nil, nil
	b.explained = map[Rejection]explanation{}
	for _, k := range c.kinds() {
		b.explain(c, k.Rejection)
	}
	for _, further := range c.further {
		for _, r := range further {
			b.explain(c, r)
		}
	}
	return &b
}

// explain keeps the reasons of a rejection: plugins have those of the last Begin.
func (c *Cycle) explain(of *Cycle, r Rejection) {
	var e explanation
	e.plugin, e.reasons = of.Explain(r)
	c.explained[r] = e
}
