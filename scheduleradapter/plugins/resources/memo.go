// Package resources has the plugins NodeResourcesFit and
// NodeResourcesBalancedAllocation: whether a node has room for what a pod
// requests, and how good a use of the room that would be.
package resources

import (
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// memo is a figure for every node. Between two cycles only few nodes change, and
// only those are computed again.
type memo struct {
	mark   uint64
	values []int64
}

// figure computes the values of the rows that begin with one.
type figure func(values []int64, from nodetable.Row)

// refresh brings the figures up to date.
func (m *memo) refresh(t *nodetable.Table, compute figure) []int64 {
	if n := t.Rows() - len(m.values); n > 0 {
		m.values = append(m.values, make([]int64, n)...)
	}
	if changed, ok := t.ChangedSince(m.mark); ok {
		for _, row := range changed {
			compute(m.values[row:row+1], row)
		}
	} else {
		compute(m.values[:t.Alive().End()], 0)
	}
	m.mark = t.Mark()
	return m.values
}

// memos are for pods of distinct shapes.
type memos struct {
	*nodetable.Recent[nodetable.Shape, memo]
}

// Distinct shapes of pods whose figures are remembered.
const kept = 64

func newMemos() memos { return memos{nodetable.NewRecent[nodetable.Shape, memo](kept)} }

// of brings the figures for a shape up to date.
func (m memos) of(shape nodetable.Shape, t *nodetable.Table, compute figure) []int64 {
	figures, known := m.At(shape)
	if !known {
		figures.mark = 0
	}
	return figures.refresh(t, compute)
}
