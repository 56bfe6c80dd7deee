package nodetable

import (
	"cmp"
	"iter"
	"slices"
)

// RowCount is the number of pods on a row.
type RowCount struct {
	Row   Row
	Count int32
}

// Tally is the number of pods by row, and by domain of topologies.
type Tally struct {
	blocks  [][]RowCount // sorted, without zero counts and empty blocks
	rows    int
	total   int
	domains []domainCounts
}

type domainCounts struct {
	topology *Topology
	counts   []int32
}

// Total is the number of pods.
func (y *Tally) Total() int { return y.total }

// tallyBlock is the most rows of a block. A change moves the rows of one block, not all.
const tallyBlock = 512

// Len is the number of rows with pods.
func (y *Tally) Len() int { return y.rows }

// Rows are the rows with pods, ascending. It is valid until the next change.
func (y *Tally) Rows() iter.Seq[RowCount] {
	return func(yield func(RowCount) bool) {
		for _, block := range y.blocks {
			for _, on := range block {
				if !yield(on) {
					return
				}
			}
		}
	}
}

// On is the number of pods on a row.
func (y *Tally) On(row Row) int32 {
	if block, i, found := y.find(row); found {
		return y.blocks[block][i].Count
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
	for c := range y.Rows() {
		d.add(c.Row, c.Count)
	}
	y.domains = append(y.domains, d)
	return d.counts
}

// find is the place of a row, or the one at which it is to be inserted.
func (y *Tally) find(row Row) (block, i int, found bool) {
	if len(y.blocks) == 0 {
		return 0, 0, false
	}
	block, found = slices.BinarySearchFunc(y.blocks, row, func(b []RowCount, row Row) int { return cmp.Compare(b[0].Row, row) })
	if !found && block > 0 {
		block--
	}
	i, found = slices.BinarySearchFunc(y.blocks[block], row, func(c RowCount, row Row) int { return cmp.Compare(c.Row, row) })
	return block, i, found
}

func (y *Tally) insert(block, i int, c RowCount) {
	y.rows++
	switch {
	case len(y.blocks) == 0:
		y.blocks = append(y.blocks, []RowCount{c})
		return
	case len(y.blocks[block]) < tallyBlock:
	case i == tallyBlock && block == len(y.blocks)-1:
		y.blocks = append(y.blocks, []RowCount{c})
		return
	default:
		full := y.blocks[block]
		y.blocks = slices.Insert(y.blocks, block+1, slices.Clone(full[tallyBlock/2:]))
		if y.blocks[block] = full[:tallyBlock/2]; i > tallyBlock/2 {
			block, i = block+1, i-tallyBlock/2
		}
	}
	y.blocks[block] = slices.Insert(y.blocks[block], i, c)
}

func (y *Tally) remove(block, i int) {
	y.rows--
	if y.blocks[block] = slices.Delete(y.blocks[block], i, i+1); len(y.blocks[block]) == 0 {
		y.blocks = slices.Delete(y.blocks, block, block+1)
	}
}

func (y *Tally) add(row Row, n int32) {
	y.total += int(n)
	block, i, found := y.find(row)
	switch {
	case !found:
		y.insert(block, i, RowCount{row, n})
	case y.blocks[block][i].Count == -n:
		y.remove(block, i)
	default:
		y.blocks[block][i].Count += n
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
