// Package collect reads the values of package stats from the kernel: cgroups, statfs,
// /proc and directories. A value that cannot be read is unknown and does not affect
// the others. The package decides nothing and calls no container runtime and no API.
//
// Each of its types is used by one goroutine, that of the sensing loop, unless said
// otherwise.
//
// On cgroup v2 the memory of a whole machine is read from /proc/meminfo, which costs less
// than memory.stat of the root. Each filesystem is asked on a goroutine of its own: one
// that hangs delays no other.
//
// A disk scan measures what a pod holds: its volumes except hostPath, its logs, its
// writable layers (as the runtime reports them, or the upper directory of the overlay), and
// files that it has deleted and holds open. It follows no link. A regular scan visits only
// directories that have changed, and files that are large or were written in the last ten
// minutes. A complete scan follows every ten minutes, when a disk fills by more than the
// regular scan explains, and when a decision asks for it.
package collect
