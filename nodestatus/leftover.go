package nodestatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ReasonReady is the reason of the condition Ready of a Node that evictd has registered.
const ReasonReady = "EvictdReady"

// Leftover are conditions and taints that an earlier evictd has left on a Node. The zero Leftover has none.
type Leftover struct {
	Conditions []v1.NodeConditionType
	Taints     []string // keys; their effect is NoSchedule
}

// Leftover returns what the Node has of an evictd of another mode and, if this one does not write, of an evictd of any
// mode. The kubelet's names are evictd's only on a Node that evictd has registered; elsewhere a kubelet writes them.
func (m Mode) Leftover(node *v1.Node, writes bool) (left Leftover) {
	tables := [][len(own)]names{own}
	if ready := find(node.Status.Conditions, v1.NodeReady); ready != nil && ready.Reason == ReasonReady {
		tables = append(tables, builtIn)
	}
	for _, table := range tables {
		for i, n := range table {
			if writes && n == m.names(i) {
				continue
			}
			if find(node.Status.Conditions, n.condition) != nil && !slices.Contains(left.Conditions, n.condition) {
				left.Conditions = append(left.Conditions, n.condition)
			}
			if slices.ContainsFunc(node.Spec.Taints, n.sets) && !slices.Contains(left.Taints, n.taint) {
				left.Taints = append(left.Taints, n.taint)
			}
		}
	}
	return left
}

// Without returns taints without those of the Leftover, and whether that changes them.
func (l Leftover) Without(taints []v1.Taint) (kept []v1.Taint, changed bool) {
	kept = slices.DeleteFunc(slices.Clone(taints), func(t v1.Taint) bool { return t.Effect == v1.TaintEffectNoSchedule && slices.Contains(l.Taints, t.Key) })
	return kept, len(kept) != len(taints)
}

// sets reports whether evictd sets the taint for the condition.
func (n names) sets(taint v1.Taint) bool {
	return taint.Key == n.taint && taint.Effect == v1.TaintEffectNoSchedule
}

func find(conditions []v1.NodeCondition, kind v1.NodeConditionType) *v1.NodeCondition {
	if at := slices.IndexFunc(conditions, func(c v1.NodeCondition) bool { return c.Type == kind }); at >= 0 {
		return &conditions[at]
	}
	return nil
}
