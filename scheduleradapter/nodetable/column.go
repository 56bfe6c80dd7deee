package nodetable

import "math"

// Column is a resource: the allocatable and the requested amount of each node, in
// the unit of the digests.
type Column struct {
	Allocatable, Requested []int64

	// floor is a lower bound of the free amount of the rows of each word.
	floor   []int64
	carries carries
}

// Lacking are the rows of a word that have less free than the request, and of these
// the rows whose allocatable amount is less.
func (c *Column) Lacking(request int64, word int) (lacking, never uint64) {
	if request <= c.floor[word] {
		return 0, 0
	}
	lacking, never, c.floor[word] = lack(c.Allocatable[word<<6:][:64], c.Requested[word<<6:][:64], request)
	return lacking, never
}

// lack is Lacking of 64 rows, with the least free amount.
func lack(allocatable, requested []int64, request int64) (lacking, never uint64, least int64) {
	allocatable, requested = allocatable[:64], requested[:64]
	least = math.MaxInt64
	for i := range allocatable {
		free := allocatable[i] - requested[i]
		least = min(least, free)
		lacking |= below(free, request) << i
	}
	if lacking != 0 {
		for i := range allocatable {
			never |= below(allocatable[i], request) << i
		}
	}
	return lacking, never, least
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

// AllocatableOn is the allocatable amount of a row.
func (c *Column) AllocatableOn(row Row) int64 { return c.Allocatable[row] }

func (c *Column) request(row Row, n int64) {
	c.carries.add(&c.Requested[row], row, n)
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
