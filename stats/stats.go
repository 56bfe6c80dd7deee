// Package stats holds measured values and the arithmetic over them. It reads nothing;
// stats/collect does.
package stats

import "time"

// Amount is a measured number of bytes, inodes, processes or events. The zero
// Amount was not measured: unknown is not zero.
type Amount struct {
	n     int64
	known bool
}

// Known is a measured Amount of n.
func Known(n int64) Amount { return Amount{n, true} }

// Get returns the number, and whether it was measured at all.
func (a Amount) Get() (n int64, known bool) { return a.n, a.known }

// IsKnown says whether the amount was measured.
func (a Amount) IsKnown() bool { return a.known }

// Or returns the number, or fallback where nothing was measured.
func (a Amount) Or(fallback int64) int64 {
	if a.known {
		return a.n
	}
	return fallback
}

// Plus adds two amounts. It is known only where both are.
func (a Amount) Plus(b Amount) Amount {
	if !a.known || !b.known {
		return Amount{}
	}
	return Known(a.n + b.n)
}

// Minus subtracts b from a and never goes below zero. It is known only where
// both are.
func (a Amount) Minus(b Amount) Amount {
	if !a.known || !b.known {
		return Amount{}
	}
	return Known(max(0, a.n-b.n))
}

// Sum adds the amounts that are known. It is unknown where none of them is.
func Sum(amounts ...Amount) Amount {
	var sum Amount
	for _, a := range amounts {
		if a.known {
			sum = Known(sum.n + a.n)
		}
	}
	return sum
}

// Least is the lesser of two amounts. An unknown one does not count.
func (a Amount) Least(b Amount) Amount {
	if !a.known || b.known && b.n < a.n {
		return b
	}
	return a
}

// Memory is the figures of one memory cgroup, or of the machine for the root of the
// hierarchy. Bytes, unless said otherwise.
type Memory struct {
	// Limit is memory.limit_in_bytes (v1) or memory.max (v2) of the cgroup, or
	// MemTotal for the root. Unknown if the cgroup has no limit. The limit of the cgroup
	// taken as the node is the least of its own, those above it, and MemTotal.
	Limit Amount
	// Usage is memory.usage_in_bytes (v1) or memory.current (v2). The root of
	// a v2 hierarchy has no memory.current: there it is anon + file.
	Usage Amount
	// InactiveFile is total_inactive_file (v1) or inactive_file (v2).
	InactiveFile Amount
	// ActiveFile is total_active_file (v1) or active_file (v2).
	ActiveFile Amount
	// SlabReclaimable is slab_reclaimable (v2), or SReclaimable of /proc/meminfo
	// for the root; unknown for other v1 cgroups.
	SlabReclaimable Amount
	// Refaulted is what was read back of files after it had been reclaimed, since the
	// creation of the cgroup or the boot: workingset_refault_file (v2),
	// total_workingset_refault (v1).
	Refaulted Amount
	// ReadBack is what was read back, of files and anonymous memory, after it had been reclaimed, since the
	// creation of the cgroup or the boot: refaults and swap-ins.
	ReadBack Amount
	// Stolen is what the kernel has reclaimed because the machine was short of memory, and not a
	// cgroup at its limit (pgsteal_kswapd and pgsteal_direct of /proc/vmstat); only the root of v2 has them.
	Stolen Amount
	// MemFree is that of /proc/meminfo; only the root has one.
	MemFree Amount
	// Hugetlb is what huge pages of all sizes set aside, used or not (Hugetlb of
	// /proc/meminfo); only the root has one.
	Hugetlb Amount
	// MemAvailable is the kernel's own estimate in /proc/meminfo; only the
	// root has one.
	MemAvailable Amount
}

// WorkingSet is usage less inactive file pages, at least zero, as the kubelet computes
// it. Unknown inactive file pages count as zero.
func (m Memory) WorkingSet() Amount { return m.Usage.Minus(Known(m.InactiveFile.Or(0))) }

// Reclaimable is the part of the working set that the kernel can reclaim without an OOM
// kill: active file pages and reclaimable slab, bytes.
func (m Memory) Reclaimable() Amount { return Sum(m.ActiveFile, m.SlabReclaimable) }

// Free is memory that is not used at all, bytes: not even by page cache.
func (m Memory) Free() Amount {
	if m.MemFree.known {
		return m.MemFree
	}
	return m.Limit.Minus(m.Usage)
}

// Filesystem is one statfs: bytes for ordinary users (f_bavail), and inodes.
// The inode counts are unknown where the filesystem has none.
type Filesystem struct {
	Time                time.Time // of the statfs; zero where it is the node's
	Capacity, Available Amount    // f_blocks and f_bavail times f_frsize, bytes
	Inodes, InodesFree  Amount    // f_files, f_ffree
}

// Tasks is the number of kernel tasks (threads) and its limit.
type Tasks struct {
	Max     Amount // min of pid_max, threads-max and the cgroup's pids.max
	Running Amount // fourth field of /proc/loadavg, or pids.current of the cgroup
}

// Stall is one line of a pressure file (PSI): how long some, or all, of the tasks have
// waited for the resource, since the boot or the creation of the cgroup.
type Stall struct {
	Some, Full time.Duration
	Known      bool
}

// Swap is the swap space of the machine, bytes: SwapTotal and SwapFree of /proc/meminfo. A page
// that zswap keeps compressed occupies its place in it, and a zram device is a part of it.
type Swap struct {
	Total, Free Amount
}

// Node is one reading of the node, taken at Time. Each value that could not be read is
// unknown.
type Node struct {
	Time        time.Time
	Memory      Memory // of the cgroup taken as the node
	PodsMemory  Memory // of the cgroup of all pods, with their limit
	NodeFs      Filesystem
	ImageFs     Filesystem
	ContainerFs Filesystem
	Tasks       Tasks
	Swap        Swap

	MemoryStall, IOStall, CPUStall Stall
	// PodsStall is of the memory of the cgroup of all pods. It is read where asked for.
	PodsStall Stall
}

// Pod is one reading of a pod, taken at Time.
type Pod struct {
	Time       time.Time
	Memory     Amount      // working set, bytes
	Swap       Amount      // bytes of the pod in swap; unknown without swap accounting
	ReadBack   Amount      // as of Memory
	Processes  Amount      // entries of cgroup.procs, as the kubelet counts pids
	Threads    Amount      // tasks, as the kernel counts pids
	Containers []Container // in the order of the pod's manifest, init containers first
	Volumes    []Volume    // in the order of the pod's manifest
	// Files are those of no container: directly in the pod's log directory, and its
	// etc-hosts.
	Files Volume
	// Unlinked is the deleted files on the node's filesystem that processes of the
	// pod have open.
	Unlinked Volume
	// Own is the files of the pod's own directory that are in no volume, such as termination messages.
	Own Volume
	// Partial says that not all of what the pod holds on disks was measured.
	Partial bool
}

// Container is one reading of a container: bytes, and inodes.
type Container struct {
	Memory               Amount // working set
	Growth               int64  // of Memory, bytes a second; zero where it is not known
	Rootfs, RootfsInodes Amount // the writable layer, with deleted files that are open
	Logs, LogsInodes     Amount
	LogsElsewhere        bool // the logs are on another filesystem than the node's
}

// Volume is one reading of a part of a disk: bytes, and inodes. The reading began at
// Time.
type Volume struct {
	Time         time.Time
	Used, Inodes Amount
	Elsewhere    bool // it is on another filesystem than the node's
}

// Plus adds two readings; one that is unknown adds nothing.
func (v Volume) Plus(w Volume) Volume {
	if v.Time.IsZero() || !w.Time.IsZero() && w.Time.Before(v.Time) {
		v.Time = w.Time
	}
	v.Used, v.Inodes = Sum(v.Used, w.Used), Sum(v.Inodes, w.Inodes)
	return v
}
