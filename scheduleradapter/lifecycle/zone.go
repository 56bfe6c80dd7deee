package lifecycle

import (
	"iter"
	"time"
)

// Defaults of the node lifecycle controller of Kubernetes 1.37.
const (
	evictionRate      = 0.1  // nodes per second and zone
	disruptedRate     = 0.01 // in a large, partially disrupted zone; a small one has none
	largeZone         = 50   // nodes of the largest small zone
	unhealthyFraction = 0.55 // of nodes that are not ready, in a partially disrupted zone
)

// zone limits the rate of NoExecute taints.
type zone struct {
	ready, unready int
	rate           float64 // nodes per second
	next           time.Time
}

// Zones yields the number of nodes of each zone in the last pass, and how many were
// not ready.
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

// limit sets the rate by the state of the zone. A changed rate restarts the
// limiter, unless evictions are pending.
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

// take reports whether one more node may be tainted, and counts it.
func (z *zone) take(now time.Time) bool {
	if z.rate == 0 || z.next.After(now) {
		return false
	}
	z.next = now.Add(interval(z.rate))
	return true
}

func interval(rate float64) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / rate)
}
