package framework

import (
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// SumFilterer is a Filterer that compares sums of requests. Its result for a node
// with fewer pods follows from the sums.
type SumFilterer interface {
	Filterer
	// DecidesBySums reports whether the result for the cycle's pod depends on sums
	// only.
	DecidesBySums(c *Cycle) bool
	// ReasonsWith are the reasons for which the pod does not fit a row with these free
	// amounts; 0: it fits. It is valid after Filter.
	ReasonsWith(c *Cycle, free nodetable.Sum) (reasons uint32)
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

// FreeBesideNominated are the free amounts of a rejected row beside the nominated pods of the
// same or higher priority. known is false if the result does not follow from sums.
func (c *Cycle) FreeBesideNominated(row nodetable.Row) (free nodetable.Sum, known bool) {
	if c.sumFilter < 0 || int(c.rejections[row].filter) != c.sumFilter || !c.Table.Exact(row) {
		return free, false
	}
	return c.free(row), true
}

func (c *Cycle) free(row nodetable.Row) nodetable.Sum {
	return c.Table.Free(row).Minus(c.nominations.sum(row))
}

// RejectedWith is why the pod would not fit a row with these free amounts, if
// FreeBesideNominated is known; false: it fits.
func (c *Cycle) RejectedWith(free nodetable.Sum) (why Rejection, rejected bool) {
	m := c.runner.filters[c.sumFilter].plugin.(SumFilterer)
	why = Rejection{filter: int16(c.sumFilter), reasons: m.ReasonsWith(c, free)}
	return why, why.reasons != 0
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
	why, rejected := c.RejectedWith(c.free(row))
	why.Unresolvable = !feasible && was.Unresolvable
	return !rejected, why, Status{}
}
