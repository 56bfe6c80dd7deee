package framework

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// rowPlugins are the plugins of an attempt that evaluate single rows.
type rowPlugins struct {
	filters []rowFilter
	scorers []named[RowScorer]
	classes []classScorer
	width   int
	spans   []int64 // buffer of scores
	// candidates are the classes with feasible rows, rows their numbers, parts their values of a plugin, and
	// bonus their weighted scores.
	candidates []uint8
	rows       []int // by candidate
	parts      []Class
	scores     []int64
	bonus      []int64
	signature  Signature
	values     [classValues]int32
	wanted     [mostClasses]int64   // sums by class
	sample     []nodetable.Row      // rows in the order of the search; see rowScores.sample
	sampled    [noClass + 1]sampled // by class
	tied       nodetable.Bits
}

type rowFilter struct {
	RowFilterer
	classes   ClassFilterer // nil: none
	index     int
	at, width int // in the values of a class
}

type classScorer struct {
	ClassScorer
	weight    int64
	at, width int
}

// sign finds the plugins of the cycle's pod, and makes its signature. false: a result
// depends on more than the rows.
func (r *Runner) sign(c *Cycle) bool {
	p, s := &c.rowPlugins, &c.rowPlugins.signature
	*s = Signature{runner: r, shape: c.Pod.Requests.Shape}
	p.filters, p.scorers, p.classes, p.width = p.filters[:0], p.scorers[:0], p.classes[:0], 0
	for i := range r.filters {
		if c.skipFilter[i] {
			continue
		}
		f, ok := r.filters[i].plugin.(RowFilterer)
		if !ok {
			return false
		}
		begin := c.Timing.beginPlugin()
		width, ok := f.SignFilter(c, s)
		if c.Timing.endPlugin(Filter, r.filters[i].name, Success, begin); !ok {
			return false
		}
		own := rowFilter{RowFilterer: f, index: i, at: p.width, width: width}
		if width > 0 {
			own.classes = f.(ClassFilterer)
		}
		p.filters = append(p.filters, own)
		p.width += width
		s.end(i, width)
	}
	for i := range r.scorers {
		begin := c.Timing.beginPlugin()
		ok := p.sign(c, &r.scorers[i], len(r.filters)+i)
		if c.Timing.endPlugin(Score, r.scorers[i].name, Success, begin); !ok {
			return false
		}
	}
	most := int64(0)
	for i := range p.scorers {
		most += p.scorers[i].weight * MaxScore
	}
	return most <= mostSum && p.width <= classValues && s.valid()
}

// sign adds a scorer; false: its scores depend on more than the rows.
func (p *rowPlugins) sign(c *Cycle, n *named[Scorer], number int) bool {
	s := &p.signature
	switch plugin := n.plugin.(type) {
	case RowScorer:
		scores, ok := plugin.SignScore(c, s)
		if !ok || n.weight < 0 || n.weight > mostSum {
			return false
		}
		if scores {
			p.scorers = append(p.scorers, named[RowScorer]{plugin: plugin, weight: n.weight})
			s.end(number, 0)
		}
		return true
	case ClassScorer:
		width, ok := plugin.SignClasses(c, s)
		if width > 0 {
			p.classes = append(p.classes, classScorer{plugin, n.weight, p.width, width})
			p.width += width
			s.end(number, width)
		}
		return ok
	case IdleScorer:
		return plugin.ScoresAlike()
	}
	return false
}

// evaluate replaces the result of a row; false: there are too many classes.
func (e *rowScores) evaluate(c *Cycle, row nodetable.Row) bool {
	p := &c.rowPlugins
	if !c.Table.Alive().Has(row) {
		e.set(row, noClass, 0)
		return true
	}
	for i := range p.filters {
		if !p.filters[i].FitsRow(c, row) {
			e.set(row, noClass, 0)
			return true
		}
	}
	sum := int64(0)
	p.spans = sized(p.spans, 1)
	for i := range p.scorers {
		p.scorers[i].plugin.ScoreSpan(c, row, p.spans)
		sum += p.spans[0] * p.scorers[i].weight
	}
	class, ok := e.classOfRow(c, row)
	if ok {
		e.set(row, class, uint16(sum))
	}
	return ok
}

func (e *rowScores) classOfRow(c *Cycle, row nodetable.Row) (uint8, bool) {
	p := &c.rowPlugins
	values := &p.values
	*values = [classValues]int32{}
	for i := range p.filters {
		if f := &p.filters[i]; f.width > 0 {
			f.classes.FilterClass(c, row, values[f.at:][:f.width])
		}
	}
	for i := range p.classes {
		s := &p.classes[i]
		s.ScoreClass(c, row, values[s.at:][:s.width])
	}
	return e.classOf(values)
}

// evaluateAll replaces the results of all rows; false: there are too many classes, or a
// filter failed.
func (e *rowScores) evaluateAll(c *Cycle) bool {
	p, t := &c.rowPlugins, c.Table
	c.Feasible = c.Feasible.Copied(t.Alive())
	for i := range p.filters {
		f := &p.filters[i]
		if f.width == 0 {
			if s := c.runner.filterBy(c, f.index, f.index+1); !s.OK() {
				return false
			}
			continue
		}
		for row := range c.Feasible.All() {
			if !f.FitsRow(c, row) {
				c.Feasible.Clear(row)
			}
		}
	}
	e.empty(t.Rows())
	clear(e.sums)
	end := int(t.Alive().End())
	p.spans = slices.Grow(p.spans[:0], end)[:end]
	for i := range p.scorers {
		p.scorers[i].plugin.ScoreSpan(c, 0, p.spans)
		weight := p.scorers[i].weight
		for row, score := range p.spans {
			e.sums[row] += uint16(score * weight)
		}
	}
	for row := range c.Feasible.All() {
		class, ok := e.classOfRow(c, row)
		if !ok {
			e.full = true
			return false
		}
		e.class[row] = class
		k := &e.classes[class]
		k.rows++
		k.tops[row/blockRows].add(e.sums[row])
	}
	c.Feasible = c.Feasible.Emptied(t.Rows())
	return true
}
