package admission

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// conditionTaints are what the node lifecycle controller makes of conditions.
var conditionTaints = []struct {
	condition v1.NodeConditionType
	status    v1.ConditionStatus
	taint     string
}{
	{v1.NodeReady, v1.ConditionFalse, v1.TaintNodeNotReady},
	{v1.NodeReady, v1.ConditionUnknown, v1.TaintNodeUnreachable},
	{v1.NodeMemoryPressure, v1.ConditionTrue, v1.TaintNodeMemoryPressure},
	{v1.NodeDiskPressure, v1.ConditionTrue, v1.TaintNodeDiskPressure},
	{v1.NodePIDPressure, v1.ConditionTrue, v1.TaintNodePIDPressure},
	{v1.NodeNetworkUnavailable, v1.ConditionTrue, v1.TaintNodeNetworkUnavailable},
}

// CompleteNode makes a node's capacity allocatable where nothing is said of that,
// and adds the NoSchedule taints that follow from its conditions and from
// spec.unschedulable. NoExecute taints are the lifecycle controller's to add, at
// its rate; taints that are given stay.
func CompleteNode(node *v1.Node) (faults field.ErrorList) {
	if node.Status.Allocatable == nil {
		node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	}
	for _, key := range ImpliedTaints(node) {
		repel(node, key)
	}
	faults = checkAmounts(field.NewPath("status", "capacity"), node.Status.Capacity)
	return append(faults, checkAmounts(field.NewPath("status", "allocatable"), node.Status.Allocatable)...)
}

// ImpliedTaints are the keys of the NoSchedule taints that follow from a node's
// conditions and from spec.unschedulable.
func ImpliedTaints(node *v1.Node) (keys []string) {
	for _, row := range conditionTaints {
		if slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == row.condition && c.Status == row.status }) {
			keys = append(keys, row.taint)
		}
	}
	if node.Spec.Unschedulable {
		keys = append(keys, v1.TaintNodeUnschedulable)
	}
	return keys
}

// ImpliesTaint says whether a key is one that ImpliedTaints knows: such a taint
// of the effect NoSchedule is there if it follows, and only then.
func ImpliesTaint(key string) bool {
	for _, row := range conditionTaints {
		if row.taint == key {
			return true
		}
	}
	return key == v1.TaintNodeUnschedulable
}

func repel(node *v1.Node, key string) {
	taint := v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
}
