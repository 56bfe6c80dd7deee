package eviction

import (
	"time"

	"github.com/evictd/evictd/stats"
)

// Observer turns readings of a node into observations of its signals. It
// remembers only what the memory model needs to distinguish cold cache from hot, and a window of stalls.
type Observer struct {
	Model stats.MemoryModel
	// Thrash has the window of memory.stall.
	Thrash stats.Thrash

	cold stats.Coldness
}

// Observe evaluates one reading. The memory signals have the kubelet's
// capacity: what is available and the working set together.
func (o *Observer) Observe(n *stats.Node) Observations {
	cold := o.cold.Observe(n)
	memory := func(m stats.Memory) (available, capacity stats.Amount) {
		return m.Available(o.Model, cold), m.Available(stats.WorkingSetModel, false).Plus(m.WorkingSet())
	}
	var all Observations
	at := func(s Signal, taken time.Time, available, capacity stats.Amount) {
		if taken.IsZero() {
			taken = n.Time
		}
		if available.IsKnown() {
			all[s] = Observation{Available: available, Capacity: capacity, Time: taken}
		}
	}
	set := func(s Signal, available, capacity stats.Amount) { at(s, n.Time, available, capacity) }
	available, capacity := memory(n.Memory)
	set(MemoryAvailable, available, capacity)
	available, capacity = memory(n.PodsMemory)
	set(AllocatableMemoryAvailable, available, capacity)
	at(NodeFsAvailable, n.NodeFs.Time, n.NodeFs.Available, n.NodeFs.Capacity)
	at(NodeFsInodesFree, n.NodeFs.Time, n.NodeFs.InodesFree, n.NodeFs.Inodes)
	at(ImageFsAvailable, n.ImageFs.Time, n.ImageFs.Available, n.ImageFs.Capacity)
	at(ImageFsInodesFree, n.ImageFs.Time, n.ImageFs.InodesFree, n.ImageFs.Inodes)
	at(ContainerFsAvailable, n.ContainerFs.Time, n.ContainerFs.Available, n.ContainerFs.Capacity)
	at(ContainerFsInodesFree, n.ContainerFs.Time, n.ContainerFs.InodesFree, n.ContainerFs.Inodes)
	set(PIDAvailable, n.Tasks.Max.Minus(n.Tasks.Running), n.Tasks.Max)
	if total, known := n.Swap.Total.Get(); known && total > 0 { // without swap there is none to run out of
		set(SwapAvailable, n.Swap.Free, n.Swap.Total)
	}
	if stall, known := o.Thrash.Observe(n); known {
		set(MemoryStall, stats.Known(stats.WholeTime-stall.Full), stats.Known(stats.WholeTime))
		all[MemoryStall].Some, all[MemoryStall].ReadBack = stats.Known(stall.Some), stall.ReadBack
	}
	return all
}
