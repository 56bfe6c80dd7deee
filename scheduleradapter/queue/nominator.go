package queue

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Nominator has the nominated nodes of pods, of all schedulers.
type Nominator struct {
	nominations []nomination // in the order in which they were added; without a pod: cleared
	at          map[types.UID]int
	on          map[nodetable.Symbol][]*nodetable.Pod // by node, in the same order
}

type nomination struct {
	pod  *nodetable.Pod
	node nodetable.Symbol
}

// NewNominator makes an empty Nominator.
func NewNominator() *Nominator {
	return &Nominator{at: map[types.UID]int{}, on: map[nodetable.Symbol][]*nodetable.Pod{}}
}

// Nominate replaces the nomination of a pod; an empty node clears it.
func (n *Nominator) Nominate(pod *nodetable.Pod, node string) {
	n.Clear(pod.UID)
	if node == "" {
		return
	}
	p := nomination{pod, nodetable.Intern(node)}
	n.at[pod.UID] = len(n.nominations)
	n.nominations = append(n.nominations, p)
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
	at, ok := n.at[uid]
	if !ok {
		return
	}
	node := n.nominations[at].node
	delete(n.at, uid)
	n.nominations[at] = nomination{}
	n.sweep()
	n.on[node] = slices.DeleteFunc(n.on[node], func(p *nodetable.Pod) bool { return p.UID == uid })
	if len(n.on[node]) == 0 {
		delete(n.on, node)
	}
}

// sweep removes the cleared nominations when they are more than the others.
func (n *Nominator) sweep() {
	if len(n.nominations) <= 2*len(n.at)+64 {
		return
	}
	n.nominations = slices.DeleteFunc(n.nominations, func(p nomination) bool { return p.pod == nil })
	for i := range n.nominations {
		n.at[n.nominations[i].pod.UID] = i
	}
}

// Node is the nominated node of a pod; empty: none.
func (n *Nominator) Node(uid types.UID) string {
	if at, ok := n.at[uid]; ok {
		return n.nominations[at].node.Value()
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
			if p.pod != nil && !yield(p.pod, p.node) {
				return
			}
		}
	}
}

// Len is the number of nominations.
func (n *Nominator) Len() int { return len(n.at) }
