package eviction_test

import (
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// reading is a node of 1000 bytes with 500 in its working set.
func reading(change func(*stats.Node)) *stats.Node {
	n := &stats.Node{
		Time:       start,
		Memory:     stats.Memory{Limit: stats.Known(1000), Usage: stats.Known(600), InactiveFile: stats.Known(100)},
		PodsMemory: stats.Memory{Limit: stats.Known(800), Usage: stats.Known(400), InactiveFile: stats.Known(50)},
		NodeFs:     stats.Filesystem{Capacity: stats.Known(10_000), Available: stats.Known(4000), Inodes: stats.Known(100), InodesFree: stats.Known(40)},
		Tasks:      stats.Tasks{Max: stats.Known(32768), Running: stats.Known(768)},
	}
	if change != nil {
		change(n)
	}
	return n
}

// rule: 1.10
// rule: 1.11
// rule: 1.12
// rule: 1.13
// rule: 1.14
// rule: 1.15
// rule: 1.19
// rule: 1.32
func TestSignalsAreObservedFromAReading(t *testing.T) {
	for name, test := range map[string]struct {
		change              func(*stats.Node)
		signal              eviction.Signal
		available, capacity int64 // -1 where the signal is unknown
	}{
		"memory":                 {nil, eviction.MemoryAvailable, 500, 1000},
		"memory without a limit": {func(n *stats.Node) { n.Memory.Limit = stats.Amount{} }, eviction.MemoryAvailable, -1, 0},
		"memory without usage":   {func(n *stats.Node) { n.Memory.Usage = stats.Amount{} }, eviction.MemoryAvailable, -1, 0},
		"huge pages come off memory and capacity": {func(n *stats.Node) { n.Memory.Hugetlb = stats.Known(200) }, eviction.MemoryAvailable, 300, 800},
		"more huge pages than there is room":      {func(n *stats.Node) { n.Memory.Hugetlb = stats.Known(700) }, eviction.MemoryAvailable, 0, 500},
		"a working set above the limit":           {func(n *stats.Node) { n.Memory.Usage = stats.Known(1300) }, eviction.MemoryAvailable, 0, 1200},
		"allocatable memory":                      {nil, eviction.AllocatableMemoryAvailable, 450, 800},
		"allocatable memory beside huge pages":    {func(n *stats.Node) { n.Memory.Hugetlb = stats.Known(200) }, eviction.AllocatableMemoryAvailable, 450, 800},
		"allocatable memory without a limit":      {func(n *stats.Node) { n.PodsMemory.Limit = stats.Amount{} }, eviction.AllocatableMemoryAvailable, -1, 0},
		"a filesystem":                            {nil, eviction.NodeFsAvailable, 4000, 10_000},
		"inodes of a filesystem":                  {nil, eviction.NodeFsInodesFree, 40, 100},
		"a filesystem that counts no inodes":      {func(n *stats.Node) { n.NodeFs.Inodes, n.NodeFs.InodesFree = stats.Amount{}, stats.Amount{} }, eviction.NodeFsInodesFree, -1, 0},
		"a filesystem that was not read":          {nil, eviction.ImageFsAvailable, -1, 0},
		"process ids":                             {nil, eviction.PIDAvailable, 32000, 32768},
		"process ids without a count":             {func(n *stats.Node) { n.Tasks.Running = stats.Amount{} }, eviction.PIDAvailable, -1, 0},
		"process ids without a maximum":           {func(n *stats.Node) { n.Tasks.Max = stats.Amount{} }, eviction.PIDAvailable, -1, 0},
	} {
		var o eviction.Observer
		want := eviction.Observation{}
		if test.available >= 0 {
			want = eviction.Observation{Available: stats.Known(test.available), Capacity: stats.Known(test.capacity), Time: start}
		}
		if got := o.Observe(reading(test.change))[test.signal]; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestTheMemoryModelChangesWhatIsAvailableAndNotTheCapacity(t *testing.T) {
	cache := func(refaults int64, after time.Duration) *stats.Node {
		return reading(func(n *stats.Node) {
			n.Memory.ActiveFile, n.PodsMemory.ActiveFile = stats.Known(200), stats.Known(100)
			n.Memory.MemAvailable, n.Memory.Refaulted = stats.Known(640), stats.Known(refaults)
			n.Time = start.Add(after)
		})
	}
	for _, test := range []struct {
		model               stats.MemoryModel
		node, pods          int64 // available
		nodeSoon, nodeLater int64 // with cold cache, and once it is read back
	}{
		{stats.WorkingSetModel, 500, 450, 500, 500},
		{stats.AvailableModel, 640, 550, 640, 640},
		{stats.ReclaimAwareModel, 700, 550, 700, 500},
	} {
		o := eviction.Observer{Model: test.model}
		first, soon, later := o.Observe(cache(0, 0)), o.Observe(cache(0, time.Second)), o.Observe(cache(100, 2*time.Second))
		got := []int64{first[eviction.MemoryAvailable].Available.Or(-1), first[eviction.AllocatableMemoryAvailable].Available.Or(-1),
			soon[eviction.MemoryAvailable].Available.Or(-1), later[eviction.MemoryAvailable].Available.Or(-1)}
		if want := []int64{test.node, test.pods, test.nodeSoon, test.nodeLater}; text(got) != text(want) {
			t.Errorf("%v: available %v, want %v", test.model, got, want)
		}
		if c := soon[eviction.MemoryAvailable].Capacity.Or(-1); c != 1000 {
			t.Errorf("%v: capacity %d", test.model, c)
		}
	}
}
