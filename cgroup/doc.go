// Package cgroup reads and drives control groups of both versions: what a group
// uses, who lives in it, how to stop it. It finds the hierarchies of the host in
// its mount table; a host whose memory controller lives in v1 hierarchies is a
// v1 host, also where an empty v2 hierarchy is mounted beside them (hybrid).
//
// Paths are those below a hierarchy's mount point and are the same in every v1
// hierarchy: "/" is the top, "/kubepods/burstable" a group below it.
//
// Reads go through descriptors that stay open and allocate nothing. That is why
// they are written by hand: the statistics of containerd/cgroups open, read and
// close each file and build a tree of objects at every call, which is right for
// a metrics endpoint and wrong in a loop that runs while memory runs out.
// Creating and deleting groups, which is rare, is left to that library.
//
// The package never decides anything, and never logs.
package cgroup
