package stats

import "time"

// The judgement of Coldness: over the last second or more, at most one in
// coldRefaults of the reclaimable pages was read back a second, and tasks
// waited for memory less than one part in coldStall of the time.
const (
	coldWindow   = time.Second
	coldRefaults = 100
	coldStall    = 100
	pageSize     = 4096
)

// Coldness follows a node's readings and judges whether its reclaimable memory
// lies unused, so that it could be taken back at no cost. Until the first second is
// over it takes it to lie unused: who comes to a node full of cache ends nobody
// for that.
type Coldness struct {
	at       time.Time
	refaults Amount
	stall    Stall
	cold     bool
}

// Observe takes up a reading. Without refault counts nothing is ever cold;
// without pressure files the refaults decide alone.
func (c *Coldness) Observe(n *Node) bool {
	elapsed := n.Time.Sub(c.at)
	if !c.at.IsZero() && elapsed < coldWindow {
		return c.cold
	}
	if c.at.IsZero() {
		c.cold = n.Memory.Refaults.IsKnown()
	} else {
		refaulted := n.Memory.Refaults.Minus(c.refaults)
		perSecond := float64(refaulted.Or(0)) * pageSize / elapsed.Seconds()
		quiet := !n.MemoryStall.Known || (n.MemoryStall.Some-c.stall.Some)*coldStall < elapsed
		c.cold = refaulted.known && quiet && perSecond*coldRefaults <= float64(n.Memory.Reclaimable().Or(0))
	}
	c.at, c.refaults, c.stall = n.Time, n.Memory.Refaults, n.MemoryStall
	return c.cold
}
