package queue

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Nominator has the nominated nodes of pods, of all schedulers.
type Nominator struct {
	nominations []nomination // in the order in which they were added
	nodes       map[types.UID]nodetable.Symbol
	on          map[nodetable.Symbol][]*nodetable.Pod // by node, in the same order
}

type nomination struct {
	pod  *nodetable.Pod
	node nodetable.Symbol
}

// NewNominator makes an empty Nominator.
func NewNominator() *Nominator {
	return &Nominator{nodes: map[types.UID]nodetable.Symbol{}, on: map[nodetable.Symbol][]*nodetable.Pod{}}
}

// Nominate replaces the nomination of a pod; an empty node clears it.
func (n *Nominator) Nominate(pod *nodetable.Pod, node string) {
	n.Clear(pod.UID)
	if node == "" {
		return
	}
	p := nomination{pod, nodetable.Intern(node)}
	n.nominations = append(n.nominations, p)
	n.nodes[pod.UID] = p.node
	n.on[p.node] = append(n.on[p.node], pod)
}

// Update takes the new version of a pod. If status.nominatedNodeName is empty in
// both versions, the nomination remains: the API server may not have it yet.
func (n *Nominator) Update(before, after *nodetable.Pod) {
	node := after.Object.Status.NominatedNodeName
	if node == "" && before.Object.Status.NominatedNodeName == "" {
		node = n.Node(after.UID)
	}
	n.Nominate(after, node)
}

// Clear clears the nomination of a pod.
func (n *Nominator) Clear(uid types.UID) {
	node, ok := n.nodes[uid]
	if !ok {
		return
	}
	delete(n.nodes, uid)
	n.nominations = slices.DeleteFunc(n.nominations, func(p nomination) bool { return p.pod.UID == uid })
	n.on[node] = slices.DeleteFunc(n.on[node], func(p *nodetable.Pod) bool { return p.UID == uid })
	if len(n.on[node]) == 0 {
		delete(n.on, node)
	}
}

// Node is the nominated node of a pod; empty: none.
func (n *Nominator) Node(uid types.UID) string {
	if node, ok := n.nodes[uid]; ok {
		return node.Value()
	}
	return ""
}

// On yields the pods that are nominated to a node, in the order of nomination.
func (n *Nominator) On(node nodetable.Symbol) iter.Seq[*nodetable.Pod] {
	return slices.Values(n.on[node])
}

// All yields all nominations in their order, for framework.Runner.Begin.
func (n *Nominator) All() iter.Seq2[*nodetable.Pod, nodetable.Symbol] {
	return func(yield func(*nodetable.Pod, nodetable.Symbol) bool) {
		for _, p := range n.nominations {
			if !yield(p.pod, p.node) {
				return
			}
		}
	}
}

// Len is the number of nominations.
func (n *Nominator) Len() int { return len(n.nominations) }
