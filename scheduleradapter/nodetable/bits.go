package nodetable

import (
	"iter"
	"math/bits"
)

// Row is the place of a node in every column. The row of a node that is gone is
// given to the next one.
type Row int32

// NoRow is where no node is.
const NoRow Row = -1

// Bits is a set of rows. Sets that are combined have the same length.
type Bits []uint64

func words(rows int) int { return (rows + 63) / 64 }

// Has says whether the row is in the set.
func (b Bits) Has(r Row) bool { return b[r>>6]&(1<<(r&63)) != 0 }

// Set puts the row into the set.
func (b Bits) Set(r Row) { b[r>>6] |= 1 << (r & 63) }

// Clear takes the row out of the set.
func (b Bits) Clear(r Row) { b[r>>6] &^= 1 << (r & 63) }

// And keeps the rows that are in the other set too.
func (b Bits) And(other Bits) {
	other = other[:len(b)]
	for i := range b {
		b[i] &= other[i]
	}
}

// AndNot takes out the rows of the other set.
func (b Bits) AndNot(other Bits) {
	other = other[:len(b)]
	for i := range b {
		b[i] &^= other[i]
	}
}

// Or puts in the rows of the other set.
func (b Bits) Or(other Bits) {
	other = other[:len(b)]
	for i := range b {
		b[i] |= other[i]
	}
}

// SetAll puts the rows in.
func (b Bits) SetAll(rows []Row) {
	for _, r := range rows {
		b.Set(r)
	}
}

// Count is the number of rows in the set.
func (b Bits) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty says whether no row is in the set.
func (b Bits) Empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// End is one more than the last row of the set, 0 where it is empty.
func (b Bits) End() Row {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0 {
			return Row(i<<6 + bits.Len64(b[i]))
		}
	}
	return 0
}

// All yields the rows in ascending order. Rows taken out on the way, but for
// those of the word being read, are not seen again.
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

// Emptied is an empty set for the given number of rows, in the memory of b where
// that suffices.
func (b Bits) Emptied(rows int) Bits {
	n := words(rows)
	if cap(b) < n {
		return make(Bits, n)
	}
	b = b[:n]
	clear(b)
	return b
}

// Copied is the set src in the memory of b where that suffices.
func (b Bits) Copied(src Bits) Bits { return append(b[:0], src...) }

// Gather picks the values of rows in ascending order out of a column.
func Gather(into, column []int64, rows []Row) {
	n := len(rows)
	if n > 0 && int(rows[n-1]-rows[0]) == n-1 {
		copy(into, column[rows[0]:][:n]) // no gap
		return
	}
	for i, row := range rows {
		into[i] = column[row]
	}
}
