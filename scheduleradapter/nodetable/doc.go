// Package nodetable holds the cluster as columns: one dense row a node, one
// array a figure. Kubernetes objects are digested once, when they arrive; from
// then on a scheduling cycle reads integers and bitsets, and what other
// schedulers count in every cycle (pods a selector matches, in each topology
// domain) is kept up to date as pods come and go.
//
// A Table belongs to one goroutine. Digests (Pod, Node and what they are made
// of) are immutable and may be made by any. Changes made inside a Try are undone
// exactly. The package decides nothing, does no I/O and knows no plugin.
package nodetable
