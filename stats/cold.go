package stats

import "time"

// Reclaimable memory is cold if, over the last coldWindow or more, at most one in
// coldRefaults of it was read back per second, and tasks waited for memory less
// than one part in coldStall of the time.
const (
	coldWindow   = time.Second
	coldRefaults = 100
	coldStall    = 100
)

// Coldness decides from a node's readings whether its reclaimable memory is unused, so
// that reclaiming it costs nothing. In the first second it is cold: at the start no pod
// is evicted because of page cache.
type Coldness struct {
	at        time.Time
	refaulted Amount
	stall     Stall
	cold      bool
}

// Observe adds a reading and returns whether memory is cold. Without refault counts it
// is not; without pressure files only refaults count.
func (c *Coldness) Observe(n *Node) bool {
	elapsed := n.Time.Sub(c.at)
	if !c.at.IsZero() && elapsed < coldWindow {
		return c.cold
	}
	if c.at.IsZero() {
		c.cold = n.Memory.Refaulted.IsKnown()
	} else {
		refaulted := n.Memory.Refaulted.Minus(c.refaulted)
		perSecond := float64(refaulted.Or(0)) / elapsed.Seconds()
		lowStall := !n.MemoryStall.Known || (n.MemoryStall.Some-c.stall.Some)*coldStall < elapsed
		c.cold = refaulted.known && lowStall && perSecond*coldRefaults <= float64(n.Memory.Reclaimable().Or(0))
	}
	c.at, c.refaulted, c.stall = n.Time, n.Memory.Refaulted, n.MemoryStall
	return c.cold
}
