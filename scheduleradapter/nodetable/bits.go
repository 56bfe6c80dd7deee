package nodetable

import (
	"iter"
	"math/bits"
)

// Row is the index of a node in every column. Rows of removed nodes are reused.
type Row int32

// NoRow is no row.
const NoRow Row = -1

// Bits is a set of rows. Combined sets have the same length.
type Bits []uint64

func words(rows int) int { return (rows + 63) / 64 }

func (b Bits) Has(r Row) bool { return b[r>>6]&(1<<(r&63)) != 0 }

func (b Bits) Set(r Row) { b[r>>6] |= 1 << (r & 63) }

func (b Bits) Clear(r Row) { b[r>>6] &^= 1 << (r & 63) }

// And keeps the rows of the other set.
func (b Bits) And(other Bits) {
	other = other[:len(b)]
	for i := range b {
		b[i] &= other[i]
	}
}

// AndNot removes the rows of the other set.
func (b Bits) AndNot(other Bits) {
	other = other[:len(b)]
	for i := range b {
		b[i] &^= other[i]
	}
}

// Or adds the rows of the other set.
func (b Bits) Or(other Bits) {
	other = other[:len(b)]
	for i := range b {
		b[i] |= other[i]
	}
}

// SetAll adds rows.
func (b Bits) SetAll(rows []Row) {
	for _, r := range rows {
		b.Set(r)
	}
}

func (b Bits) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

func (b Bits) Empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// Nth is the row of an ascending list of the rows at an index from 0; NoRow: there are
// fewer.
func (b Bits) Nth(n int) Row {
	for i, w := range b {
		if here := bits.OnesCount64(w); n >= here {
			n -= here
			continue
		}
		for ; n > 0; n-- {
			w &= w - 1
		}
		return Row(i<<6 + bits.TrailingZeros64(w))
	}
	return NoRow
}

// End is the last row plus one; 0: the set is empty.
func (b Bits) End() Row {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0 {
			return Row(i<<6 + bits.Len64(b[i]))
		}
	}
	return 0
}

// All yields the rows in ascending order. Rows that are removed meanwhile are not
// yielded, except those of the current word.
func (b Bits) All() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for i, w := range b {
			for ; w != 0; w &= w - 1 {
				if !yield(Row(i<<6 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

// Append appends the rows in ascending order.
func (b Bits) Append(rows []Row) []Row {
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			rows = append(rows, Row(i<<6+bits.TrailingZeros64(w)))
		}
	}
	return rows
}

// Emptied is an empty set for a number of rows that reuses the memory of b.
func (b Bits) Emptied(rows int) Bits {
	n := words(rows)
	if cap(b) < n {
		return make(Bits, n)
	}
	b = b[:n]
	clear(b)
	return b
}

// Grown is b for a number of rows that is at least as high.
func (b Bits) Grown(rows int) Bits { return longer(b, words(rows)) }

// Copied is a copy of src that reuses the memory of b.
func (b Bits) Copied(src Bits) Bits { return append(b[:0], src...) }

// Gather copies the values of ascending rows out of a column.
func Gather[T int8 | int32 | int64](into []int64, column []T, rows []Row) {
	n := len(rows)
	if n > 0 && int(rows[n-1]-rows[0]) == n-1 {
		into = into[:n]
		for i, value := range column[rows[0]:][:n] { // the rows are contiguous
			into[i] = int64(value)
		}
		return
	}
	for i, row := range rows {
		into[i] = int64(column[row])
	}
}
