package nodetable

import "math"

// Amounts are a Column or a SparseColumn.
type Amounts interface {
	Lacking(request int64, word int) (lacking, never uint64)
	Free(row Row) int64
	AllocatableOn(row Row) int64
}

// SparseColumn is the Column of an extended resource, which few nodes may have. It takes
// memory for the words in which a row has an amount. A nil column has none.
type SparseColumn struct {
	blocks []*block // by word; nil, and beyond the end: no amounts
	// users is the number of nodes and pods that have the resource; owner is the
	// namespace of the pod that brought it, zero: a node did.
	users   int
	owner   Symbol
	carries carries
}

// block has the amounts of the rows of a word. floor is a lower bound of the free ones.
type block struct {
	allocatable, requested [64]int64
	floor                  int64
}

func (c *SparseColumn) block(word int) *block {
	if c == nil || word >= len(c.blocks) {
		return nil
	}
	return c.blocks[word]
}

// Lacking is that of a Column.
func (c *SparseColumn) Lacking(request int64, word int) (lacking, never uint64) {
	b := c.block(word)
	switch {
	case b == nil && request <= 0, b != nil && request <= b.floor:
		return 0, 0
	case b == nil:
		return math.MaxUint64, math.MaxUint64
	}
	lacking, never, b.floor = lack(b.allocatable[:], b.requested[:], request)
	return lacking, never
}

// On is the allocatable and the requested amount of a row.
func (c *SparseColumn) On(row Row) (allocatable, requested int64) {
	if b := c.block(int(row >> 6)); b != nil {
		return b.allocatable[row&63], b.requested[row&63]
	}
	return 0, 0
}

// Free is the free amount of a row; it may be negative.
func (c *SparseColumn) Free(row Row) int64 {
	allocatable, requested := c.On(row)
	return allocatable - requested
}

// AllocatableOn is the allocatable amount of a row.
func (c *SparseColumn) AllocatableOn(row Row) int64 {
	allocatable, _ := c.On(row)
	return allocatable
}

func (c *SparseColumn) request(row Row, n int64) {
	b := c.made(row)
	c.carries.add(&b.requested[row&63], row, n)
	c.lower(b, row)
}

func (c *SparseColumn) allow(row Row, n int64) {
	b := c.made(row)
	b.allocatable[row&63] = n
	c.lower(b, row)
}

func (c *SparseColumn) made(row Row) *block {
	word := int(row >> 6)
	c.blocks = longer(c.blocks, max(word+1, len(c.blocks)))
	if c.blocks[word] == nil {
		c.blocks[word] = &block{}
	}
	return c.blocks[word]
}

// lower lowers the floor, and frees a block without amounts.
func (c *SparseColumn) lower(b *block, row Row) {
	i := row & 63
	b.floor = min(b.floor, b.allocatable[i]-b.requested[i])
	if b.allocatable[i] == 0 && b.requested[i] == 0 && b.allocatable == ([64]int64{}) && b.requested == ([64]int64{}) {
		c.blocks[row>>6] = nil
	}
}
