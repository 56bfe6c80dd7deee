// Package outoftree runs plugins that are written against the published interfaces
// of k8s.io/kube-scheduler/framework, at every extension point, beside the
// built-in ones.
//
// At the start of a cycle the rows of the table that have changed become
// NodeInfos; the others keep theirs. What the scheduler tries out, with nominated
// pods or without victims, is replayed on a copy of the cycle state with AddPod
// and RemovePod. A plugin reaches the scheduler through its Handle; what concerns
// table or queue is done while their owner stands still in a plugin, or by the
// owner when it comes to it.
//
// The package decides nothing. A profile without foreign plugins does not come
// near it.
package outoftree
