// Package collect reads the values of package stats from the kernel: cgroups, statfs,
// /proc and directories. A value that cannot be read is unknown and does not affect the
// others. The package decides nothing and calls no container runtime and no API.
//
// Each of its types is used by one goroutine, that of the sensing loop, unless said
// otherwise.
package collect
