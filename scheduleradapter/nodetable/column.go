package nodetable

import "math"

// Column is a resource: the allocatable and the requested amount of each node, in
// the unit of the digests.
type Column struct {
	Allocatable, Requested []int64

	// floor is a lower bound of the free amount of the rows of each word.
	floor []int64
	// users is the number of nodes and pods that have an extended resource.
	users int
}

// Lacking are the rows of a word that have less free than the request, and of these
// the rows whose allocatable amount is less. A nil column has nothing.
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

// below is 1 or 0, compiled without a branch.
func below(a, b int64) uint64 {
	bit := uint64(0)
	if a < b {
		bit = 1
	}
	return bit
}

// Free is the free amount of a row; it may be negative.
func (c *Column) Free(row Row) int64 { return c.Allocatable[row] - c.Requested[row] }

func (c *Column) request(row Row, n int64) {
	c.Requested[row] += n
	c.lower(row)
}

func (c *Column) allow(row Row, n int64) {
	c.Allocatable[row] = n
	c.lower(row)
}

// lower lowers the floor to the free amount of a row. Lacking raises it.
func (c *Column) lower(row Row) {
	c.floor[row>>6] = min(c.floor[row>>6], c.Free(row))
}

func (c *Column) grow(rows int) {
	c.Allocatable, c.Requested = longer(c.Allocatable, rows), longer(c.Requested, rows)
	c.floor = longer(c.floor, words(rows))
}
