package lifecycle

import (
	"iter"
	"time"
)

// What the node lifecycle controller of Kubernetes 1.37 does unless told otherwise.
const (
	evictionRate      = 0.1  // nodes a second and zone that get a NoExecute taint
	disruptedRate     = 0.01 // where a large zone is partially disrupted; none in a small one
	largeZone         = 50   // has more nodes than this
	unhealthyFraction = 0.55 // of a partially disrupted zone's nodes are not ready
)

// zone limits how fast its nodes get NoExecute taints.
type zone struct {
	ready, unready int
	rate           float64 // nodes a second
	next           time.Time
}

// Zones are how many nodes of each zone that there ever was counted in the last
// pass, and how many of them were not ready.
func (m *Monitor) Zones() iter.Seq2[string, Census] {
	return func(yield func(string, Census) bool) {
		for key, z := range m.zones {
			if !yield(key, Census{z.ready + z.unready, z.unready}) {
				return
			}
		}
	}
}

// Census counts nodes.
type Census struct{ Nodes, Unready int }

// fullyDisrupted: no node is ready.
func (z *zone) fullyDisrupted() bool { return z.ready == 0 && z.unready > 0 }

func (z *zone) partiallyDisrupted() bool {
	return z.unready > 2 && float64(z.unready) >= unhealthyFraction*float64(z.ready+z.unready)
}

// limit sets the rate by the state of the zone. A new one begins anew, unless the
// old one left something to do.
func (z *zone) limit(now time.Time) {
	rate := evictionRate
	if !z.fullyDisrupted() && z.partiallyDisrupted() {
		rate = 0
		if z.ready+z.unready > largeZone {
			rate = disruptedRate
		}
	}
	if rate == z.rate {
		return
	}
	if z.next.After(now) {
		z.next = now.Add(interval(rate))
	}
	z.rate = rate
}

// take says whether one more node may be tainted, and counts it.
func (z *zone) take(now time.Time) bool {
	if z.rate == 0 || z.next.After(now) {
		return false
	}
	z.next = now.Add(interval(z.rate))
	return true
}

// interval between two nodes.
func interval(rate float64) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / rate)
}
