package queue

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Nominator remembers which pods are promised room on which node: preemption
// made the nomination and the room is not free yet. It is kept apart from the Queue,
// because pods of other schedulers are promised room too.
type Nominator struct {
	nominations []nomination // in the order in which they were made
	nodes       map[types.UID]nodetable.Symbol
}

type nomination struct {
	pod  *nodetable.Pod
	node nodetable.Symbol
}

// NewNominator makes one without nominations.
func NewNominator() *Nominator {
	return &Nominator{nodes: map[types.UID]nodetable.Symbol{}}
}

// Nominate nominations a pod room on a node instead of what it was promised before;
// an empty node takes the nomination back.
func (n *Nominator) Nominate(pod *nodetable.Pod, node string) {
	n.Clear(pod.UID)
	if node == "" {
		return
	}
	p := nomination{pod, nodetable.Intern(node)}
	n.nominations = append(n.nominations, p)
	n.nodes[pod.UID] = p.node
}

// Update takes a pod's new version. Where neither version's
// status.nominatedNodeName names a node, a nomination made here stands: the API
// server may not know of it yet.
func (n *Nominator) Update(before, after *nodetable.Pod) {
	node := after.Object.Status.NominatedNodeName
	if node == "" && before.Object.Status.NominatedNodeName == "" {
		node = n.Node(after.UID)
	}
	n.Nominate(after, node)
}

// Clear takes back the nomination to a pod: it is placed, or gone.
func (n *Nominator) Clear(uid types.UID) {
	if _, ok := n.nodes[uid]; ok {
		delete(n.nodes, uid)
		n.nominations = slices.DeleteFunc(n.nominations, func(p nomination) bool { return p.pod.UID == uid })
	}
}

// Node is where the pod is promised room, empty for nowhere.
func (n *Nominator) Node(uid types.UID) string {
	if node, ok := n.nodes[uid]; ok {
		return node.Value()
	}
	return ""
}

// On is who is promised room on the node, in the order of the nominations.
func (n *Nominator) On(node nodetable.Symbol) iter.Seq[*nodetable.Pod] {
	return func(yield func(*nodetable.Pod) bool) {
		for _, p := range n.nominations {
			if p.node == node && !yield(p.pod) {
				return
			}
		}
	}
}

// All is every nomination in the order in which they were made, as
// framework.Runner.Begin takes them.
func (n *Nominator) All() iter.Seq2[*nodetable.Pod, nodetable.Symbol] {
	return func(yield func(*nodetable.Pod, nodetable.Symbol) bool) {
		for _, p := range n.nominations {
			if !yield(p.pod, p.node) {
				return
			}
		}
	}
}

// Len is how many pods are promised room.
func (n *Nominator) Len() int { return len(n.nominations) }
