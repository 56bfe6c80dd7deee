// Package resources has the plugins NodeResourcesFit and
// NodeResourcesBalancedAllocation, and score plugins for further scoring strategies
// of a legacy Policy.
package resources

import (
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// memo caches a value for each node. Only changed nodes are computed again.
type memo struct {
	mark   uint64
	values []int64
}

// figure computes the values of the rows from one on.
type figure func(values []int64, from nodetable.Row)

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

// memos are memos by shape of the pod.
type memos struct {
	*nodetable.Recent[nodetable.Shape, memo]
}

// kept bounds the cached shapes.
const kept = 64

func newMemos() memos { return memos{nodetable.NewRecent[nodetable.Shape, memo](kept)} }

func (m memos) of(shape nodetable.Shape, t *nodetable.Table, compute figure) []int64 {
	figures, known := m.At(shape)
	if !known {
		figures.mark = 0
	}
	return figures.refresh(t, compute)
}
