// Package collect reads the values of package stats from the kernel: cgroups,
// statfs, /proc and directories. What cannot be read stays unknown, and blinds
// nothing else. It never decides, and it waits for nobody: no runtime, no API.
//
// Its types belong to one goroutine each, that which senses.
package collect
