package framework

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// SumFilterer is a Filterer that compares amounts: what it would say of a node with
// fewer or more pods follows from sums, without trying it out.
type SumFilterer interface {
	Filterer
	// Measures says whether sums tell all there is to the cycle's pod.
	DecidesBySums(c *Cycle) bool
	// Lacks are the reasons for which the cycle's pod would not fit a row if the
	// pods there requested so much less; 0 where it would. It is good after the
	// cycle's Filter.
	ReasonsWithout(c *Cycle, row nodetable.Row, less nodetable.Sum) (reasons uint32)
}

// PodIndependent is a Filterer that looks at nodes and never at the pods on them.
type PodIndependent interface{ IgnoresPods() }

// sumFilter is the index of the filter on which alone it depends what pods coming
// and going mean for the cycle's pod: all others that look at pods are skipped,
// and those that run do so before it. It is -1 where there is none.
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

// Lacks tells why the pod would not fit a row that filters have rejected, were
// less requested there by pods: the nominated ones count, who matter no less. It
// is only known, and then for every less, where amounts are all that matters to
// the pod.
func (c *Cycle) RejectedWithout(row nodetable.Row, less nodetable.Sum) (why Rejection, lacks, known bool) {
	if c.sumFilter < 0 || int(c.rejections[row].filter) != c.sumFilter {
		return Rejection{}, false, false
	}
	why = c.rejectionBySums(row, less)
	return why, why.reasons != 0, true
}

// measured is the sumFilter's rejection of a row, without reasons where it has
// none.
func (c *Cycle) rejectionBySums(row nodetable.Row, less nodetable.Sum) Rejection {
	m := c.runner.filters[c.sumFilter].plugin.(SumFilterer)
	return Rejection{filter: int16(c.sumFilter), reasons: m.ReasonsWithout(c, row, less.Minus(c.nominatedSum(row)))}
}

// fitsBesideNominated is fitsAmongNominated after the filters have run for all
// rows, without trying it out where sums tell.
func (c *Cycle) fitsBesideNominated(row nodetable.Row) (fits bool, why Rejection, s Status) {
	was := c.rejections[row]
	feasible := c.Feasible.Has(row)
	switch {
	case c.sumFilter < 0:
		return c.fitsAmongNominated(row)
	case !feasible && int(was.filter) != c.sumFilter: // the node alone is enough
		return false, was, Status{}
	}
	why = c.rejectionBySums(row, nodetable.Sum{})
	why.Unresolvable = !feasible && was.Unresolvable
	return why.reasons == 0, why, Status{}
}

// promised is what the nominated pods of a row request.
func (c *Cycle) nominatedSum(row nodetable.Row) (sum nodetable.Sum) {
	if len(c.nominated) == 0 {
		return sum
	}
	first, _ := slices.BinarySearchFunc(c.nominated, row, func(n nominee, row nodetable.Row) int { return int(n.row - row) })
	for _, n := range c.nominated[first:] {
		if n.row != row {
			break
		}
		sum = sum.Plus(n.pod.Requests.Sum())
	}
	return sum
}
