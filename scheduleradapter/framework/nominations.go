package framework

import (
	"iter"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// nominations are the nominated pods of an attempt by row.
type nominations struct {
	list []nominee
	// first is the index in list plus one, by row; 0: there is none. rows are those with a
	// nominated pod.
	first []int32
	rows  nodetable.Bits
}

// nominee is a nominated pod of a row.
type nominee struct {
	pod  *nodetable.Pod
	row  nodetable.Row
	next int32 // index in list plus one of the next one of the row; 0: there is none
	// last is the index of the last one of the row, and sum the requests of all, in the first.
	last int32
	sum  nodetable.Sum
}

// empty removes all, for a number of rows.
func (n *nominations) empty(rows int) {
	for i := range n.list {
		n.first[n.list[i].row] = 0
	}
	clear(n.list)
	n.list = n.list[:0]
	if rows > len(n.first) {
		n.first = append(n.first, make([]int32, rows-len(n.first))...)
	}
	n.rows = n.rows.Emptied(rows)
}

func (n *nominations) add(pod *nodetable.Pod, row nodetable.Row) {
	at := int32(len(n.list))
	n.list = append(n.list, nominee{pod: pod, row: row, last: at})
	first := &n.list[at]
	if i := n.first[row]; i == 0 {
		n.first[row] = at + 1
		n.rows.Set(row)
	} else {
		first = &n.list[i-1]
		n.list[first.last].next = at + 1
		first.last = at
	}
	first.sum = first.sum.Plus(pod.Requests.Sum())
}

// sum is that of the requests of the pods of a row.
func (n *nominations) sum(row nodetable.Row) (sum nodetable.Sum) {
	if i := n.first[row]; i > 0 {
		sum = n.list[i-1].sum
	}
	return sum
}

// on yields the pods of a row in their order.
func (n *nominations) on(row nodetable.Row) iter.Seq[*nodetable.Pod] {
	return func(yield func(*nodetable.Pod) bool) {
		for i := n.first[row]; i > 0 && yield(n.list[i-1].pod); i = n.list[i-1].next {
		}
	}
}

// nominate keeps the nominated pods of the same or higher priority.
func (c *Cycle) nominate(nominated iter.Seq2[*nodetable.Pod, nodetable.Symbol]) {
	c.nominations.empty(c.Table.Rows())
	if nominated == nil {
		return
	}
	for pod, node := range nominated {
		if pod.Priority < c.Pod.Priority || pod.UID == c.Pod.UID {
			continue
		}
		if row := c.Table.Row(node); row != nodetable.NoRow {
			c.nominations.add(pod, row)
		}
	}
}

// fitsAmongNominated runs the filters with the nominated pods on the node; true:
// there are none.
func (c *Cycle) fitsAmongNominated(row nodetable.Row) (bool, Rejection, Status) {
	if c.nominations.first[row] == 0 {
		return true, Rejection{}, Status{}
	}
	c.Table.Try()
	defer c.Table.Undo()
	for pod := range c.nominations.on(row) {
		c.Table.Place(pod, row)
	}
	rejection, fits, status := c.probe(row)
	return fits, rejection, status
}

// filterNominated runs the filters on nodes to which other pods are nominated, with these there.
func (r *Runner) filterNominated(c *Cycle) Status {
	for row := range c.nominations.rows.All() {
		if !c.candidates.Has(row) {
			continue
		}
		fits, rejection, s := c.fitsBesideNominated(row)
		if s.Code == Error {
			return s
		}
		if !fits {
			c.Feasible.Clear(row)
			c.rejections[row] = rejection
		}
	}
	return Status{}
}
