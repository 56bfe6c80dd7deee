package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// sample keeps the first `enough` rows of the candidates in the table's order from start,
// and the candidates that have any of them.
func (e *rowScores) sample(c *Cycle, start, enough int) (visited int) {
	p := &c.rowPlugins
	place := &p.place // of each class in candidates; -1: it is none
	for i := range place {
		place[i] = -1
	}
	for i, class := range p.candidates {
		place[class], p.rows[i] = int8(i), 0
	}
	p.sample = p.sample[:0]
	order := c.Table.Order()
	at := start % len(order)
	for ; len(p.sample) < enough; visited++ {
		row := order[at]
		if at++; at == len(order) {
			at = 0
		}
		class := e.class[row]
		if class == noClass || place[class] < 0 {
			continue
		}
		p.rows[place[class]]++
		p.sample = append(p.sample, row)
	}
	kept := 0
	for i, class := range p.candidates {
		if p.rows[i] > 0 {
			p.candidates[kept], p.rows[kept] = class, p.rows[i]
			place[class] = int8(kept)
			kept++
		}
	}
	p.candidates, p.rows = p.candidates[:kept], p.rows[:kept]
	return visited
}

// bestOfSample is one of the rows of the sample with the highest total.
func (e *rowScores) bestOfSample(c *Cycle, random Random) nodetable.Row {
	p := &c.rowPlugins
	best, ties := int64(0), 0
	p.tied = p.tied.Emptied(len(e.class))
	for _, row := range p.sample {
		total := p.bonus[p.place[e.class[row]]] + int64(e.sums[row])
		if ties == 0 || total > best {
			best, ties = total, 0
		}
		if total == best {
			ties++
		}
	}
	for _, row := range p.sample {
		if p.bonus[p.place[e.class[row]]]+int64(e.sums[row]) == best {
			p.tied.Set(row)
		}
	}
	nth := random.IntN(ties)
	for row := range p.tied.All() {
		if nth == 0 {
			return row
		}
		nth--
	}
	return nodetable.NoRow
}
