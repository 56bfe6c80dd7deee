package framework

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// SumFilterer is a Filterer that compares sums of requests. Its result for a node
// with fewer pods follows from the sums.
type SumFilterer interface {
	Filterer
	// DecidesBySums reports whether the result for the cycle's pod depends on sums
	// only.
	DecidesBySums(c *Cycle) bool
	// ReasonsWithout are the reasons for which the pod does not fit a row if the pods
	// there requested less by this sum; 0: it fits. It is valid after Filter.
	ReasonsWithout(c *Cycle, row nodetable.Row, less nodetable.Sum) (reasons uint32)
}

// PodIndependent is a Filterer that does not read the pods of nodes.
type PodIndependent interface{ IgnoresPods() }

// findSumFilter returns the index of the only filter that reads pods, if it is a
// SumFilterer that decides by sums and runs last; -1: there is none.
func (c *Cycle) findSumFilter() int {
	found := -1
	for i := range c.runner.late {
		if c.skipFilter[i] {
			continue
		}
		f := c.runner.filters[i].plugin
		if m, ok := f.(SumFilterer); ok && found < 0 && m.DecidesBySums(c) {
			found = i
		} else if _, blind := f.(PodIndependent); !blind || found >= 0 {
			return -1
		}
	}
	return found
}

// RejectedWithout is why the pod would not fit a rejected row if the pods there
// requested less by this sum, with the nominated pods of the same or higher
// priority. known is false if the result does not follow from sums.
func (c *Cycle) RejectedWithout(row nodetable.Row, less nodetable.Sum) (why Rejection, lacks, known bool) {
	if c.sumFilter < 0 || int(c.rejections[row].filter) != c.sumFilter {
		return Rejection{}, false, false
	}
	why = c.rejectionBySums(row, less)
	return why, why.reasons != 0, true
}

// rejectionBySums is the rejection of a row by the sum filter; without reasons: it
// fits.
func (c *Cycle) rejectionBySums(row nodetable.Row, less nodetable.Sum) Rejection {
	m := c.runner.filters[c.sumFilter].plugin.(SumFilterer)
	return Rejection{filter: int16(c.sumFilter), reasons: m.ReasonsWithout(c, row, less.Minus(c.nominatedSum(row)))}
}

// fitsBesideNominated is fitsAmongNominated. With a sum filter, the filters have run on all rows.
func (c *Cycle) fitsBesideNominated(row nodetable.Row) (fits bool, why Rejection, s Status) {
	was := c.rejections[row]
	feasible := c.Feasible.Has(row)
	switch {
	case c.sumFilter < 0:
		return c.fitsAmongNominated(row)
	case !feasible && int(was.filter) != c.sumFilter: // rejected without the nominated pods
		return false, was, Status{}
	}
	why = c.rejectionBySums(row, nodetable.Sum{})
	why.Unresolvable = !feasible && was.Unresolvable
	return why.reasons == 0, why, Status{}
}

// nominatedSum is the sum of the requests of the pods that are nominated to a row.
func (c *Cycle) nominatedSum(row nodetable.Row) nodetable.Sum {
	if c.asked.row != row {
		c.asked = nominee{row: row}
		if first, found := c.firstNominee(row); found {
			c.asked = c.nominated[first]
		}
	}
	return c.asked.sum
}

func (c *Cycle) firstNominee(row nodetable.Row) (first int, found bool) {
	return slices.BinarySearchFunc(c.nominated, row, func(n nominee, row nodetable.Row) int { return int(n.row - row) })
}
