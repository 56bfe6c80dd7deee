// Package nodetable has the cluster as columns: a row per node, an array per
// quantity. Objects are digested when they arrive; a scheduling cycle reads
// integers and bitsets. The numbers of matching pods by topology domain, which
// kube-scheduler computes in each cycle, are updated with each pod.
//
// One goroutine owns a Table. Digests (Pod, Node and their parts) are immutable;
// any goroutine may make them. Undo restores the state before Try exactly. The
// package decides nothing, does no I/O and knows no plugin.
package nodetable
