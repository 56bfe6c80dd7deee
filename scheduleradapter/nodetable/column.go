package nodetable

import "math"

// Column is a resource: what each node can give to pods and what its pods have
// requested, in the unit of the digests.
type Column struct {
	Allocatable, Requested []int64

	// floor is for each word of a set of rows no more than any of them has free.
	floor []int64
}

// Lacking are the rows of a word of a set that have less free than is requested,
// and of these the ones that have less even when empty. Where there is no column
// nothing can be had.
func (c *Column) Lacking(request int64, word int) (lacking, never uint64) {
	if c == nil {
		return math.MaxUint64, math.MaxUint64
	}
	if request <= c.floor[word] {
		return 0, 0
	}
	allocatable, requested := c.Allocatable[word<<6:][:64], c.Requested[word<<6:][:64]
	least := int64(math.MaxInt64)
	for i := range allocatable {
		free := allocatable[i] - requested[i]
		least = min(least, free)
		lacking |= below(free, request) << i
	}
	c.floor[word] = least
	if lacking != 0 {
		for i := range allocatable {
			never |= below(allocatable[i], request) << i
		}
	}
	return lacking, never
}

// below is a bit; the compiler makes no branch of it.
func below(a, b int64) uint64 {
	bit := uint64(0)
	if a < b {
		bit = 1
	}
	return bit
}

func (c *Column) request(row Row, n int64) {
	c.Requested[row] += n
	c.lower(row)
}

func (c *Column) allow(row Row, n int64) {
	c.Allocatable[row] = n
	c.lower(row)
}

// lower the floor to what a row has free. It is raised when it is in the way.
func (c *Column) lower(row Row) {
	c.floor[row>>6] = min(c.floor[row>>6], c.Allocatable[row]-c.Requested[row])
}

func (c *Column) grow(rows int) {
	c.Allocatable, c.Requested = longer(c.Allocatable, rows), longer(c.Requested, rows)
	c.floor = longer(c.floor, words(rows))
}
