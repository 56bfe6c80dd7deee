package stats

import (
	"testing"
	"time"
)

// thrashNode is a node whose tasks wait by a share of the time, in percent, and that reads back some bytes a second,
// after a number of seconds.
func thrashNode(seconds int64, node, pods, readBack int64) *Node {
	stall := func(percent int64) Stall {
		full := time.Duration(seconds*percent) * 10 * time.Millisecond
		return Stall{Some: full + full/2, Full: full, Known: true}
	}
	return &Node{
		Time:        time.Unix(1000+seconds, 0),
		MemoryStall: stall(node), PodsStall: stall(pods),
		Memory:     Memory{Limit: Known(1 << 30), MemFree: Known(1 << 20), ReadBack: Known(seconds * readBack), Stolen: Known(seconds * 1000)},
		PodsMemory: Memory{Limit: Known(1 << 29), Usage: Known(1 << 28), ReadBack: Known(seconds * readBack)},
	}
}

// rule: M.163
func TestThrashingIsMeasuredOverAWindow(t *testing.T) {
	measure := func(change func(*Node), node, pods, readBack int64) (Thrashing, bool) {
		w := Thrash{Window: 10 * time.Second}
		var share Thrashing
		var known bool
		for s := int64(0); s <= 60; s++ {
			n := thrashNode(s, node, pods, readBack)
			change(n)
			share, known = w.Observe(n)
			if known != (s >= 10 && n.MemoryStall.Known) {
				t.Fatalf("known: %v after %d s", known, s)
			}
		}
		return share, known
	}
	same := func(*Node) {}
	atLimit := func(n *Node) { n.Memory.Stolen, n.PodsMemory.Usage = Known(5), Known(1<<29-1<<20) }
	for name, c := range map[string]struct {
		change               func(*Node)
		node, pods, readBack int64
		want                 Thrashing
	}{
		"the node":                            {same, 30, 20, 100, Thrashing{Some: 4500, Full: 3000, ReadBack: Known(100)}},
		"the pods":                            {same, 10, 40, 100, Thrashing{Some: 6000, Full: 4000, ReadBack: Known(100)}},
		"more than the machine has reclaimed": {func(n *Node) { n.Memory.Stolen = Known(5) }, 30, 20, 100, Thrashing{Some: 4500, Full: 3000, ReadBack: Known(0)}},
		"pods at the limit of all pods":       {atLimit, 30, 20, 100, Thrashing{Some: 4500, Full: 3000, ReadBack: Known(100)}},
		"a group with free memory":            {func(n *Node) { n.Memory.Stolen, n.Memory.MemFree = Amount{}, Known(1<<28) }, 30, 20, 100, Thrashing{Some: 4500, Full: 3000, ReadBack: Known(0)}},
		"a group without free memory":         {func(n *Node) { n.Memory.Stolen = Amount{} }, 30, 20, 100, Thrashing{Some: 4500, Full: 3000, ReadBack: Known(100)}},
		"what is read back is unknown":        {func(n *Node) { n.Memory.ReadBack, n.PodsMemory.ReadBack = Amount{}, Amount{} }, 30, 20, 100, Thrashing{Some: 4500, Full: 3000}},
		"no pressure of groups":               {func(n *Node) { n.PodsStall = Stall{} }, 30, 90, 100, Thrashing{Some: 4500, Full: 3000, ReadBack: Known(100)}},
		"no pressure files":                   {func(n *Node) { n.PodsStall, n.MemoryStall = Stall{}, Stall{} }, 30, 90, 100, Thrashing{ReadBack: Known(100)}},
	} {
		if got, _ := measure(c.change, c.node, c.pods, c.readBack); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAStallIsForgottenAfterItsWindow(t *testing.T) {
	w := Thrash{Window: 4 * time.Second}
	var total int64 // milliseconds
	for s := range 40 {
		if s >= 10 && s < 12 {
			total += 1000
		}
		for at := range 20 { // readings come much more often than is kept
			n := thrashNode(0, 0, 0, 0)
			n.Time = time.Unix(int64(1000+s), int64(at)*int64(50*time.Millisecond))
			n.MemoryStall.Full, n.MemoryStall.Some = time.Duration(total)*time.Millisecond, time.Duration(total)*time.Millisecond
			got, known := w.Observe(n)
			switch {
			case s < 4:
			case !known, s < 10 && got.Full != 0, s == 13 && got.Full < 4000, s > 16 && got.Full != 0, got.Full > WholeTime:
				t.Fatalf("after %d s: %+v, known: %v", s, got, known)
			}
		}
	}
}

func TestMeasuringThrashingAllocatesNothing(t *testing.T) {
	w := Thrash{Window: time.Second}
	n := thrashNode(1, 10, 10, 10)
	if allocated := testing.AllocsPerRun(100, func() { n.Time = n.Time.Add(50 * time.Millisecond); w.Observe(n) }); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}
