package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/stats"
)

// Observation is one signal at an instant. The zero Observation was not
// measured.
type Observation struct {
	// Available and Capacity in bytes or counts. Capacity may be unknown where
	// Available is not.
	Available, Capacity stats.Amount
	// Time at which the figure was taken; it must be later for a threshold to
	// act again.
	Time time.Time
	// UsedUpIn is the time until nothing is available at the present rate,
	// nanoseconds; unknown where the amount does not fall.
	UsedUpIn stats.Amount
	// PerSecond is how Available changes, units a second; zero where that is not known. It is measured
	// for steps before evictions only.
	PerSecond int64
	// Some and ReadBack are of memory.stall, whose Available is the part of the time in which not all tasks waited:
	// the part in which some did, and the memory that was read back, bytes a second. See stats.Thrashing.
	Some, ReadBack stats.Amount
}

// Observations holds one for each signal that a threshold can be set on.
type Observations [NumSignals]Observation

// Candidate is a pod, and what was measured of it.
type Candidate struct {
	Pod *Pod
	// Usage is nil where nothing was measured. Containers and Volumes have
	// the pod's order.
	Usage *stats.Pod
	// Growth of the memory used, bytes a second; negative where it shrinks, zero
	// where it is not known.
	Growth int64
	// ReadBack is memory that was read back after it had been reclaimed, bytes a second; zero where that is not
	// known. Stalled is the part of the time in which tasks of the pod waited for memory, in 10,000. Both are
	// measured where memory.stall has a threshold.
	ReadBack int64
	Stalled  stats.Amount
}

// part adds up what a pod holds of the parts asked for, in bytes or in inodes.
// A field that was not measured counts as zero, as in the kubelet; volumes
// count if the filter takes them. On the node's disk nothing counts that is on another.
func (c Candidate) part(parts holding, inodes bool, counts func(*Volume) bool, onDisk bool) int64 {
	var sum int64
	add := func(bytes, count stats.Amount) {
		if inodes {
			bytes = count
		}
		sum += bytes.Or(0)
	}
	for i := range c.Usage.Containers {
		used := &c.Usage.Containers[i]
		if parts&writableLayers != 0 {
			add(used.Rootfs, used.RootfsInodes)
		}
		if parts&logs != 0 && !(onDisk && used.LogsElsewhere) {
			add(used.Logs, used.LogsInodes)
		}
	}
	if parts&localVolumes == 0 {
		return sum
	}
	add(c.Usage.Unlinked.Used, c.Usage.Unlinked.Inodes)
	if onDisk && !c.Usage.Own.Elsewhere {
		add(c.Usage.Own.Used, c.Usage.Own.Inodes)
	}
	for i := range min(len(c.Usage.Volumes), len(c.Pod.Volumes)) {
		if counts(&c.Pod.Volumes[i]) && !(onDisk && c.Usage.Volumes[i].Elsewhere) {
			add(c.Usage.Volumes[i].Used, c.Usage.Volumes[i].Inodes)
		}
	}
	return sum
}

func local(v *Volume) bool     { return v.Local }
func ephemeral(v *Volume) bool { return v.Ephemeral }

// usage is what the candidate holds of the starved resource, in the signal's
// unit: of swap, memory and swap together, which is what it would use of memory without
// swap. It asks for measured usage.
func (c Candidate) usage(s Signal, l Layout) int64 {
	switch {
	case s == SwapAvailable:
		return c.Usage.Memory.Or(0) + c.Usage.Swap.Or(0)
	case s.Condition() == MemoryPressure, s == MemoryStall:
		return c.Usage.Memory.Or(0)
	case s.Condition() == PIDPressure:
		return c.Usage.Processes.Or(0)
	default:
		return c.part(l.placement(s).holds, s.Resource() == ResourceInodes, local, true)
	}
}

// frees is what the candidate's end frees of the starved resource, in the signal's unit. It
// asks for measured usage.
func (c Candidate) frees(s Signal, l Layout) int64 {
	if s == SwapAvailable {
		return c.Usage.Swap.Or(0)
	}
	return c.usage(s, l)
}

// ContainerMemory is the memory of a container of the candidate; unknown where it was not measured.
func (c Candidate) ContainerMemory(name string) (memory stats.Amount) {
	for i := range min(len(c.Usage.Containers), len(c.Pod.Containers)) {
		if c.Pod.Containers[i].Name == name {
			memory = c.Usage.Containers[i].Memory
		}
	}
	return memory
}

// runs says whether the pod is known to have processes.
func (c Candidate) runs() bool {
	return c.Usage != nil && c.Usage.Processes != stats.Known(0) && c.Usage.Threads != stats.Known(0)
}

// measured says whether there are the statistics of the pod that the signal's ranking needs.
func (c Candidate) measured(s Signal) bool {
	return c.Usage != nil && (s != SwapAvailable || c.Usage.Swap.IsKnown())
}

// request is what the candidate asked for of the starved resource. Inodes and
// process ids cannot be requested; unlike the kubelet's, the inode ranking does not
// compare them with requested bytes.
func (c Candidate) request(s Signal) int64 {
	switch s.Resource() {
	case v1.ResourceMemory, ResourceSwap:
		return c.Pod.MemoryRequest
	case v1.ResourceEphemeralStorage:
		return c.Pod.StorageRequest
	}
	return 0
}
