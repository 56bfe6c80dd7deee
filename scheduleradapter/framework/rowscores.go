package framework

import (
	"math"
	"slices"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// rowScores are the results of all rows for a signature: the class of each row that the
// row filters accept, and the sum of its weighted scores that do not follow from the
// class. Blocks of rows have the highest sum by class.
type rowScores struct {
	signature Signature
	mark      uint64 // of the table
	used      uint64 // time of ScoreCache
	// full: there are too many classes, until the time retry.
	full  bool
	retry uint64

	class   []uint8 // by row; noClass: a filter rejects the row
	sums    []uint16
	classes []rowClass
	last    int // index of the class that was found last
}

// rowClass is the rows with the same values of the class plugins.
type rowClass struct {
	values [classValues]int32
	rows   int
	tops   []top // by block
}

// top is the highest sum in a block and the number of its rows; 0: there are none.
type top struct{ sum, ties uint16 }

const (
	blockRows   = 256
	classValues = 8
	mostClasses = 64
	noClass     = math.MaxUint8
	mostSum     = math.MaxUint16
)

func blocks(rows int) int { return (rows + blockRows - 1) / blockRows }

// bytes is the size in memory for a number of rows and classes.
func (e *rowScores) bytes() int {
	if e.full {
		return 0
	}
	return 3*len(e.class) + 4*blocks(len(e.class))*len(e.classes)
}

// extend adds rows to the end.
func (e *rowScores) extend(rows int) {
	for len(e.class) < rows {
		e.class = append(e.class, noClass)
	}
	e.sums = append(e.sums, make([]uint16, rows-len(e.sums))...)
	for i := range e.classes {
		k := &e.classes[i]
		k.tops = append(k.tops, make([]top, blocks(rows)-len(k.tops))...)
	}
}

// empty removes all rows and classes and keeps the memory.
func (e *rowScores) empty(rows int) {
	e.class = slices.Grow(e.class[:0], rows)[:rows]
	for i := range e.class {
		e.class[i] = noClass
	}
	e.sums = slices.Grow(e.sums[:0], rows)[:rows]
	e.classes, e.last, e.full = e.classes[:0], 0, false
}

// classOf finds or adds a class; false: there are too many.
func (e *rowScores) classOf(values *[classValues]int32) (uint8, bool) {
	if e.last < len(e.classes) && e.classes[e.last].values == *values {
		return uint8(e.last), true
	}
	unused := -1
	for i := range e.classes {
		if e.classes[i].values == *values {
			e.last = i
			return uint8(i), true
		}
		if e.classes[i].rows == 0 {
			unused = i
		}
	}
	if unused < 0 {
		if unused = len(e.classes); unused == mostClasses {
			return noClass, false
		}
		e.classes = slices.Grow(e.classes, 1)[:unused+1] // reuses tops
		k, n := &e.classes[unused], blocks(len(e.class))
		k.tops, k.rows = slices.Grow(k.tops[:0], n)[:n], 0
		clear(k.tops)
	}
	e.last = unused
	e.classes[unused].values = *values
	return uint8(unused), true
}

// set replaces the result of a row.
func (e *rowScores) set(row nodetable.Row, class uint8, sum uint16) {
	was, before := e.class[row], e.sums[row]
	if was == class && before == sum {
		return
	}
	e.class[row] = noClass
	if was != noClass {
		k := &e.classes[was]
		k.rows--
		if t := &k.tops[row/blockRows]; t.sum == before {
			if t.ties--; t.ties == 0 {
				*t = e.topOf(was, row/blockRows)
			}
		}
	}
	e.class[row], e.sums[row] = class, sum
	if class != noClass {
		e.classes[class].rows++
		e.classes[class].tops[row/blockRows].add(sum)
	}
}

func (t *top) add(sum uint16) {
	switch {
	case t.ties == 0 || sum > t.sum:
		*t = top{sum, 1}
	case sum == t.sum:
		t.ties++
	}
}

// topOf is computed from the rows of a block.
func (e *rowScores) topOf(class uint8, block nodetable.Row) (t top) {
	first := int(block) * blockRows
	end := min(first+blockRows, len(e.class))
	sums := e.sums[first:end]
	for i, k := range e.class[first:end] {
		if k == class {
			t.add(sums[i])
		}
	}
	return t
}
