// Package outoftree runs out-of-tree plugins, written against
// k8s.io/kube-scheduler/framework, at every extension point beside the built-in
// ones.
//
// At the start of a cycle the changed rows of the table become NodeInfos. Changes
// that the scheduler tries, such as nominated pods, are applied to a clone of the
// CycleState with AddPod and RemovePod. Calls of a Handle that need the table or
// the queue run while the owner's goroutine is inside a plugin, or are posted to
// it.
//
// The package decides nothing, and is not used by profiles without such plugins.
package outoftree
