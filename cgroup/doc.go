// Package cgroup reads and changes control groups of both versions: what a group uses,
// which processes it has, how to kill them. It finds the hierarchies in the host's
// mount table. A host whose memory controller is in a v1 hierarchy is a v1 host, also
// with an empty v2 hierarchy beside it (hybrid).
//
// Paths are relative to the mount point of a hierarchy and the same in every v1
// hierarchy: "/" is the root, "/kubepods/burstable" a group below it.
//
// Reads use descriptors that stay open, and allocate nothing. They are written by hand
// because the statistics of containerd/cgroups open, read and close each file and build
// a tree of objects at every call. Creating and deleting groups uses that library.
//
// The package decides nothing and logs nothing.
package cgroup
