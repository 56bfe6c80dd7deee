package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// sample keeps the first `enough` rows of the candidates in the table's order from start,
// and the candidates that have any of them.
func (e *rowScores) sample(c *Cycle, start, enough int) (visited int) {
	p := &c.rowPlugins
	for i := range p.sampled {
		p.sampled[i].rows = excluded
	}
	for _, class := range p.candidates {
		p.sampled[class] = sampled{}
	}
	rows := sized(p.sample, enough)
	order, classes, sums := c.Table.Order(), e.class, e.sums[:len(e.class)]
	at := start % len(order)
	class, s := uint8(noClass), p.sampled[noClass] // of the row before
	for n := 0; n < len(rows); visited++ {
		row := order[at]
		if at++; at == len(order) {
			at = 0
		}
		if next := classes[row]; next != class {
			p.sampled[class] = s
			class, s = next, p.sampled[next]
		}
		if s.rows == excluded {
			continue
		}
		s.rows++
		s.best = max(s.best, sums[row])
		rows[n] = row
		n++
	}
	p.sampled[class] = s
	p.sample = rows
	kept := 0
	for _, class := range p.candidates {
		if n := p.sampled[class].rows; n > 0 {
			p.candidates[kept], p.rows[kept] = class, int(n)
			kept++
		}
	}
	p.candidates, p.rows = p.candidates[:kept], p.rows[:kept]
	return visited
}

// sampled is the rows of a class in a sample: their number and their highest sum.
type sampled struct {
	rows int32
	best uint16
}

// excluded is the number of rows of a class that is no candidate, as noClass.
const excluded = -1

// bestOfSample is one of the rows of the sample with the highest total.
func (e *rowScores) bestOfSample(c *Cycle, random Random) nodetable.Row {
	p := &c.rowPlugins
	best := int64(0)
	for i, class := range p.candidates {
		best = max(best, p.bonus[i]+int64(p.sampled[class].best))
	}
	for i := range p.wanted {
		p.wanted[i] = -1
	}
	for i, class := range p.candidates {
		p.wanted[class] = best - p.bonus[i]
	}
	ties := 0
	p.tied = p.tied.Emptied(len(e.class))
	classes, sums := e.class, e.sums[:len(e.class)]
	for _, row := range p.sample {
		if p.wanted[classes[row]] == int64(sums[row]) {
			p.tied.Set(row)
			ties++
		}
	}
	return p.tied.Nth(random.IntN(ties))
}
