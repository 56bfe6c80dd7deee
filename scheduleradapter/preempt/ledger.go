package preempt

import (
	"cmp"
	"slices"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// ledger has the sum of the requests below each priority by node, so that most
// nodes are rejected without a trial. It follows the table.
type ledger struct {
	mark uint64
	rows [][]band
}

// band is a priority of pods on a node, with the sum of the requests up to it.
type band struct {
	priority int32
	sum      nodetable.Sum
}

// follow applies the changes of the table.
func (l *ledger) follow(t *nodetable.Table) {
	for len(l.rows) < t.Rows() {
		l.rows = append(l.rows, nil)
	}
	for _, row := range t.ChangedRows(l.mark) {
		l.update(t, row)
	}
	l.mark = t.Mark()
}

func (l *ledger) update(t *nodetable.Table, row nodetable.Row) {
	bands := l.rows[row][:0]
	for _, pod := range t.PodsOn(row) {
		i, found := slices.BinarySearchFunc(bands, pod.Priority, func(b band, priority int32) int { return cmp.Compare(b.priority, priority) })
		if !found {
			bands = slices.Insert(bands, i, band{priority: pod.Priority})
		}
		bands[i].sum = bands[i].sum.Plus(pod.Requests.Sum())
	}
	for i := 1; i < len(bands); i++ {
		bands[i].sum = bands[i].sum.Plus(bands[i-1].sum)
	}
	l.rows[row] = bands
}

// below is the sum of the requests of a node's pods below a priority.
func (l *ledger) below(row nodetable.Row, priority int32) (sum nodetable.Sum) {
	for _, b := range l.rows[row] {
		if b.priority >= priority {
			break
		}
		sum = b.sum
	}
	return sum
}
