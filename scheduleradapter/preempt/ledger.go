package preempt

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// ledger has the pods of each node by importance, so that a search neither sorts nor adds
// them. It follows the table.
type ledger struct {
	mark uint64
	rows [][]ranked
}

// ranked is a pod of a node.
type ranked struct {
	pod *nodetable.Pod
	// sum is the requests of the pod and of all less important ones.
	sum         nodetable.Sum
	started     int64
	priority    int32
	terminating bool
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
	pods := l.rows[row]
	clear(pods)
	pods = pods[:0]
	for _, pod := range t.PodsOn(row) {
		pods = append(pods, ranked{pod: pod, started: started(pod), priority: pod.Priority, terminating: pod.Terminating})
	}
	slices.SortFunc(pods, func(a, b ranked) int { return compareImportance(a.pod, b.pod) })
	sum := nodetable.Sum{}
	for i := range slices.Backward(pods) {
		sum = sum.Plus(pods[i].pod.Requests.Sum())
		pods[i].sum = sum
	}
	l.rows[row] = pods
}

// lower are the pods of a node below a priority, the most important first.
func (l *ledger) lower(row nodetable.Row, priority int32) []ranked {
	pods := l.rows[row]
	if n := len(pods); n == 0 || pods[n-1].priority >= priority {
		return nil
	}
	first, _ := slices.BinarySearchFunc(pods, priority, func(p ranked, priority int32) int {
		if p.priority < priority {
			return 1
		}
		return -1
	})
	return pods[first:]
}

// sumFrom is the requests of the pods from an index on.
func sumFrom(pods []ranked, i int) (sum nodetable.Sum) {
	if i < len(pods) {
		sum = pods[i].sum
	}
	return sum
}
