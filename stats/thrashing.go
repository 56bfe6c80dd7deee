package stats

import "time"

const (
	// WholeTime is what shares of a time are parts of.
	WholeTime = 10_000
	// stallSamples is how many readings a window has.
	stallSamples = 16
	// freeShare: of a level with more free memory than a part of freeShare nothing is reclaimed for lack of it.
	freeShare = 20
)

// Thrashing is how long tasks waited for memory within a window, and what was read back in it.
type Thrashing struct {
	// Some and Full are the shares of the time in which some tasks waited, and all that were not idle, in
	// parts of WholeTime: the larger ones of the node and of the pods together.
	Some, Full int64
	// ReadBack is how much memory was read back after the node, or the limit of all pods, had it reclaimed;
	// bytes a second. What a pod reads back because of its own limit counts only where the node is short, too.
	ReadBack Amount
}

// Thrash measures Thrashing. The zero Thrash measures nothing.
type Thrash struct {
	// Window is the time that shares are of.
	Window time.Duration

	readings [stallSamples + 2]thrashReading
	n        int
}

// thrashReading is what a reading has of the node and of the pods.
type thrashReading struct {
	at       time.Time
	stall    [2]Stall
	readBack [2]Amount
	stolen   Amount
}

// Observe adds a reading of the node. It knows nothing before a window has passed, and without pressure files.
func (t *Thrash) Observe(n *Node) (share Thrashing, known bool) {
	if t.Window <= 0 {
		return share, false
	}
	now := thrashReading{n.Time, [2]Stall{n.MemoryStall, n.PodsStall}, [2]Amount{n.Memory.ReadBack, n.PodsMemory.ReadBack}, n.Memory.Stolen}
	for t.n > 1 && now.at.Sub(t.readings[1].at) >= t.Window {
		t.n--
		copy(t.readings[:t.n], t.readings[1:])
	}
	first := t.readings[0]
	elapsed := now.at.Sub(first.at)
	if known = t.n > 0 && elapsed >= t.Window; known {
		share, known = now.since(&first, elapsed, n)
	}
	if t.n == 0 || now.at.Sub(t.readings[t.n-1].at) >= t.Window/stallSamples {
		if t.n == len(t.readings) { // the clock was set
			t.n = 0
		}
		t.readings[t.n] = now
		t.n++
	}
	return share, known
}

// since is what has changed between two readings.
func (r *thrashReading) since(first *thrashReading, elapsed time.Duration, n *Node) (share Thrashing, known bool) {
	readBack := Amount{}
	for level, m := range [2]*Memory{&n.Memory, &n.PodsMemory} {
		if a, b := first.stall[level], r.stall[level]; a.Known && b.Known {
			known = true
			share.Some = max(share.Some, partOf(b.Some-a.Some, elapsed))
			share.Full = max(share.Full, partOf(b.Full-a.Full, elapsed))
		}
		if !first.readBack[level].known || !r.readBack[level].known {
			continue
		}
		back := r.readBack[level].Minus(first.readBack[level]).n
		if stolen := r.stolen.Minus(first.stolen); level == 0 && stolen.known {
			back = min(back, stolen.n)
		} else if free, limit := m.Free(), m.Limit; !free.known || !limit.known || free.n > limit.n/freeShare {
			back = 0
		}
		readBack = Known(max(readBack.n, back))
	}
	if readBack.known {
		share.ReadBack = Known(int64(float64(readBack.n) / elapsed.Seconds()))
	}
	return share, known
}

func partOf(stalled, elapsed time.Duration) int64 {
	return min(WholeTime, max(0, int64(float64(stalled)/float64(elapsed)*WholeTime)))
}
