// Package resources has the plugins NodeResourcesFit and
// NodeResourcesBalancedAllocation: whether a node has room for what a pod
// requests, and how good a use of the room that would be.
package resources

import (
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// memo is a figure for every node, for pods of one shape. Between two cycles
// only few nodes change, and only those are computed again.
type memo struct {
	mark   uint64
	values []int64
}

// Distinct shapes of pods whose figures are remembered.
const kept = 64

// of finds the memo of a shape and brings it up to date.
func of(memos *nodetable.Recent[nodetable.Shape, *memo], t *nodetable.Table, shape nodetable.Shape, figure func(nodetable.Row) int64) []int64 {
	m, found := memos.Get(shape)
	if !found {
		m = &memo{}
		memos.Put(shape, m)
	}
	if n := t.Rows() - len(m.values); n > 0 {
		m.values = append(m.values, make([]int64, n)...)
	}
	changed, ok := t.ChangedSince(m.mark)
	for _, row := range changed {
		m.values[row] = figure(row)
	}
	if !ok {
		for row := range t.Alive().All() {
			m.values[row] = figure(row)
		}
	}
	m.mark = t.Mark()
	return m.values
}
