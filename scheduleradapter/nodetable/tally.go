package nodetable

import (
	"cmp"
	"slices"
)

// RowCount is the number of pods on a row.
type RowCount struct {
	Row   Row
	Count int32
}

// Tally is the number of pods by row, and by domain of topologies.
type Tally struct {
	rows    []RowCount // sorted, without zero counts
	total   int
	domains []domainCounts
}

type domainCounts struct {
	topology *Topology
	counts   []int32
}

// Total is the number of pods.
func (y *Tally) Total() int { return y.total }

// Rows are the rows with pods, ascending. It is valid until the next change and
// must not be changed.
func (y *Tally) Rows() []RowCount { return y.rows }

// On is the number of pods on a row.
func (y *Tally) On(row Row) int32 {
	if i, found := y.find(row); found {
		return y.rows[i].Count
	}
	return 0
}

// In is the number of pods by domain of a topology, which is tracked from the first
// call on. It is valid until the next change and must not be changed.
func (y *Tally) In(topology *Topology) []int32 {
	for i := range y.domains {
		if d := &y.domains[i]; d.topology == topology {
			d.extend()
			return d.counts
		}
	}
	d := domainCounts{topology: topology}
	d.extend()
	for _, c := range y.rows {
		d.add(c.Row, c.Count)
	}
	y.domains = append(y.domains, d)
	return d.counts
}

func (y *Tally) find(row Row) (int, bool) {
	return slices.BinarySearchFunc(y.rows, row, func(c RowCount, row Row) int { return cmp.Compare(c.Row, row) })
}

func (y *Tally) add(row Row, n int32) {
	y.total += int(n)
	i, found := y.find(row)
	switch {
	case !found:
		y.rows = slices.Insert(y.rows, i, RowCount{row, n})
	case y.rows[i].Count == -n:
		y.rows = slices.Delete(y.rows, i, i+1)
	default:
		y.rows[i].Count += n
	}
	for i := range y.domains {
		y.domains[i].add(row, n)
	}
}

// move moves the count of a row to another domain.
func (y *Tally) move(topology *Topology, row Row, from, to int32) {
	for i := range y.domains {
		if d := &y.domains[i]; d.topology == topology {
			n := y.On(row)
			d.extend()
			if from != NoDomain {
				d.counts[from] -= n
			}
			if to != NoDomain {
				d.counts[to] += n
			}
		}
	}
}

func (d *domainCounts) add(row Row, n int32) {
	if domain := d.topology.Of[row]; domain != NoDomain {
		d.extend()
		d.counts[domain] += n
	}
}

func (d *domainCounts) extend() {
	if n := len(d.topology.Nodes); len(d.counts) < n {
		d.counts = longer(d.counts, n)
	}
}
