// Package resources has the plugins NodeResourcesFit and
// NodeResourcesBalancedAllocation, and score plugins for further scoring strategies
// of a legacy Policy.
package resources

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// memo caches a score for each node, a byte each. Only changed nodes are computed
// again.
type memo struct {
	mark   uint64
	scores []int8 // invalid: outside 0..framework.MaxScore
}

const invalid = -1

// figure computes the values of the rows from one on.
type figure func(values []int64, from nodetable.Row)

// span is the buffer of a figure; a memo is computed in parts of its length.
type span []int64

const spanLength = 512 // fits the fastest memory

// of is its part of a length.
func (s *span) of(length int) []int64 {
	if *s == nil {
		*s = make(span, spanLength)
	}
	return (*s)[:length]
}

func (m *memo) refresh(t *nodetable.Table, buffer *span, compute figure) []int8 {
	if n := t.Rows() - len(m.scores); n > 0 {
		m.scores = slices.Grow(m.scores, n)[:t.Rows()]
	}
	if changed, ok := t.ChangedSince(m.mark); ok {
		for _, row := range changed {
			m.fill(row, buffer.of(1), compute)
		}
	} else {
		for row, end := nodetable.Row(0), t.Alive().End(); row < end; row += spanLength {
			m.fill(row, buffer.of(min(spanLength, int(end-row))), compute)
		}
	}
	m.mark = t.Mark()
	return m.scores
}

// fill computes the rows from one on.
func (m *memo) fill(from nodetable.Row, values []int64, compute figure) {
	compute(values, from)
	scores := m.scores[from:][:len(values)]
	for i, value := range values {
		if uint64(value) > framework.MaxScore {
			value = invalid
		}
		scores[i] = int8(value)
	}
}

// memos are memos by shape of the pod, from its second attempt on.
type memos struct {
	*nodetable.Recent[nodetable.Shape, memo]
	buffer span
}

func newMemos() memos { return memos{Recent: nodetable.NewRecent[nodetable.Shape, memo](1)} }

// score fills the scores of ascending rows.
func (m *memos) score(shape nodetable.Shape, t *nodetable.Table, rows []nodetable.Row, scores []int64, compute figure) {
	m.Bound(t.KeptMemos(1))
	kept, known := m.At(shape)
	if known {
		nodetable.Gather(scores, kept.refresh(t, &m.buffer, compute), rows)
		return
	}
	kept.mark = 0
	for len(rows) > 0 {
		n, _ := slices.BinarySearch(rows[:min(spanLength, len(rows))], rows[0]+spanLength)
		if last := rows[n-1]; int(last-rows[0]) == n-1 {
			compute(scores[:n], rows[0])
		} else {
			span := m.buffer.of(int(last-rows[0]) + 1)
			compute(span, rows[0])
			for i, row := range rows[:n] {
				scores[i] = span[row-rows[0]]
			}
		}
		rows, scores = rows[n:], scores[n:]
	}
}
