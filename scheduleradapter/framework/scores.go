package framework

import "slices"

// Extremes are the lowest and the highest of at least one score.
func Extremes(scores []int64) (least, most int64) {
	// Two accumulators each, so that comparisons do not depend on the previous one.
	least, most = scores[0], scores[0]
	otherLeast, otherMost := least, most
	for len(scores) >= 2 {
		least, most = min(least, scores[0]), max(most, scores[0])
		otherLeast, otherMost = min(otherLeast, scores[1]), max(otherMost, scores[1])
		scores = scores[2:]
	}
	if len(scores) == 1 {
		least, most = min(least, scores[0]), max(most, scores[0])
	}
	return min(least, otherLeast), max(most, otherMost)
}

// Mapping maps scores. If there are few distinct scores, the function is called
// once for each. It keeps its memory.
type Mapping struct{ table []int64 }

// Apply replaces each score by the result of a function. Scores outside least..most
// are mapped one by one.
func (m *Mapping) Apply(scores []int64, least, most int64, of func(score int64) int64) {
	if span := most - least; span < 0 || span >= int64(len(scores)) {
		for i, score := range scores {
			scores[i] = of(score)
		}
		return
	}
	n := int(most-least) + 1
	m.table = slices.Grow(m.table[:0], n)[:n]
	for i := range m.table {
		m.table[i] = of(least + int64(i))
	}
	for i, score := range scores {
		if at := uint64(score - least); at < uint64(len(m.table)) {
			scores[i] = m.table[at]
		} else {
			scores[i] = of(score)
		}
	}
}
