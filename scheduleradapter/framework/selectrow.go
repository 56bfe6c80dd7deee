package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// SelectRow selects a feasible row with the highest total, each of them with the same
// probability, from the results that are kept between attempts. start and enough are
// those of Filter, visited is its result. NoRow: the results are not known, or no row is
// feasible; Filter finds the reasons. It runs after Begin, and leaves the results of the
// cycle for each row empty.
func (r *Runner) SelectRow(c *Cycle, kept *ScoreCache, start, enough int, random Random) (row nodetable.Row, visited int) {
	if c.isNarrowed || len(c.nominations.list) > 0 || r.late < len(r.filters) || r.hooks != nil || r.everyReason {
		return nodetable.NoRow, 0
	}
	spans := len(c.Timing.Spans)
	if row, visited = r.selectRow(c, kept, start, enough, random); row == nodetable.NoRow {
		c.Timing.Spans = c.Timing.Spans[:spans] // Filter and Score are measured again
	}
	return row, visited
}

func (r *Runner) selectRow(c *Cycle, kept *ScoreCache, start, enough int, random Random) (row nodetable.Row, visited int) {
	begin := c.Timing.Begin()
	if !r.sign(c) {
		return nodetable.NoRow, 0
	}
	e := kept.find(c)
	if e == nil {
		return nodetable.NoRow, 0
	}
	feasible := e.feasible(c)
	if feasible == 0 {
		return nodetable.NoRow, 0
	}
	visited = c.Table.Len()
	sampled := feasible > enough
	if sampled {
		feasible, visited = enough, e.sample(c, start, enough)
	}
	c.Timing.End(Filter, Success, begin)
	if feasible == 1 {
		return e.only(c, sampled), visited
	}
	begin = c.Timing.Begin()
	if !e.scoreClasses(c) {
		return nodetable.NoRow, 0
	}
	c.Timing.End(PreScore, Success, begin)
	begin = c.Timing.Begin()
	if sampled {
		row = e.bestOfSample(c, random)
	} else {
		best, ties := e.best(c)
		row = e.find(c, best, random.IntN(ties), true)
	}
	c.Timing.End(Score, Success, begin)
	return row, visited
}

// only is the only feasible row.
func (e *rowScores) only(c *Cycle, sampled bool) nodetable.Row {
	if sampled {
		return c.rowPlugins.sample[0]
	}
	return e.find(c, 0, 0, false)
}

// feasible lists the classes with feasible rows and counts the rows.
func (e *rowScores) feasible(c *Cycle) (rows int) {
	p := &c.rowPlugins
	p.candidates, p.rows = p.candidates[:0], p.rows[:0]
	for i := range e.classes {
		if k := &e.classes[i]; k.rows > 0 && p.fits(c, k) {
			p.candidates, p.rows = append(p.candidates, uint8(i)), append(p.rows, k.rows)
			rows += k.rows
		}
	}
	return rows
}

func (p *rowPlugins) fits(c *Cycle, k *rowClass) bool {
	for i := range p.filters {
		if f := &p.filters[i]; f.width > 0 && !f.classes.FitsClass(c, k.values[f.at:][:f.width]) {
			return false
		}
	}
	return true
}

// scoreClasses fills the bonus of each candidate; false: a score is out of range.
func (e *rowScores) scoreClasses(c *Cycle) bool {
	p := &c.rowPlugins
	n := len(p.candidates)
	p.bonus = sized(p.bonus, n)
	for i := range p.classes {
		s := &p.classes[i]
		p.parts, p.scores = p.parts[:0], sized(p.scores, n)
		for i, class := range p.candidates {
			p.parts = append(p.parts, Class{e.classes[class].values[s.at:][:s.width], p.rows[i]})
		}
		s.ScoreClasses(c, p.parts, p.scores)
		if normalizer, ok := s.ClassScorer.(Normalizer); ok {
			if status := normalizer.Normalize(c, nil, p.scores); !status.OK() {
				return false
			}
		}
		for i, score := range p.scores {
			if score < 0 || score > MaxScore {
				return false
			}
			p.bonus[i] += score * s.weight
		}
	}
	return true
}

// best is the highest total and the number of its rows.
func (e *rowScores) best(c *Cycle) (best int64, ties int) {
	p := &c.rowPlugins
	for i, class := range p.candidates {
		sum, rows := highest(e.classes[class].tops)
		switch total := p.bonus[i] + int64(sum); {
		case ties == 0 || total > best:
			best, ties = total, rows
		case total == best:
			ties += rows
		}
	}
	return best, ties
}

// highest is the highest sum and the number of its rows.
func highest(tops []top) (sum uint16, rows int) {
	for _, t := range tops {
		if t.sum > sum {
			sum, rows = t.sum, 0
		}
		if t.sum == sum {
			rows += int(t.ties)
		}
	}
	return sum, rows
}

// find is the nth row of the candidates with a total, or with any total, in ascending order.
func (e *rowScores) find(c *Cycle, total int64, nth int, scored bool) nodetable.Row {
	p := &c.rowPlugins
	wanted := &p.wanted
	for i := range wanted {
		wanted[i] = -1
	}
	for i, class := range p.candidates {
		if wanted[class] = anySum; scored {
			wanted[class] = total - p.bonus[i]
		}
	}
	for block := range blocks(len(e.class)) {
		rows := 0
		for _, class := range p.candidates {
			if t := e.classes[class].tops[block]; t.ties > 0 && (wanted[class] == anySum || int64(t.sum) == wanted[class]) {
				rows += int(t.ties)
			}
		}
		if nth >= rows {
			nth -= rows
			continue
		}
		first := block * blockRows
		for row := first; ; row++ {
			class := e.class[row]
			if class == noClass || wanted[class] != anySum && wanted[class] != int64(e.sums[row]) {
				continue
			}
			if nth == 0 {
				return nodetable.Row(row)
			}
			nth--
		}
	}
	return nodetable.NoRow
}

// anySum is each sum.
const anySum = -2
