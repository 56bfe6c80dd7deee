package lifecycle

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/admission"
)

// kubeletConditions become Unknown when a kubelet stops its heartbeats.
var kubeletConditions = []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}

// ownTaints are the NoSchedule taints of the conditions that evictd sets under its
// own names, beside a kubelet.
var ownTaints = map[v1.NodeConditionType]string{
	"evictd.io/MemoryPressure": "evictd.io/memory-pressure",
	"evictd.io/DiskPressure":   "evictd.io/disk-pressure",
	"evictd.io/PIDPressure":    "evictd.io/pid-pressure",

	"evictd.io/MemoryContention": "evictd.io/memory-contention",
}

// setUnknown sets the conditions of a kubelet without heartbeats to Unknown, with the
// messages of the node lifecycle controller. It returns the changed ones.
func setUnknown(node *v1.Node, now time.Time) (changed []v1.NodeCondition) {
	for _, kind := range kubeletConditions {
		i := indexOf(node.Status.Conditions, kind)
		switch {
		case i < 0:
			changed = append(changed, v1.NodeCondition{
				Type: kind, Status: v1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.Time{Time: now},
			})
		case node.Status.Conditions[i].Status != v1.ConditionUnknown:
			changed = append(changed, unknown(node.Status.Conditions[i], "Kubelet stopped posting node status.", now))
		}
	}
	return changed
}

// setOwnUnknown sets the conditions of an evictd without heartbeats to Unknown.
func setOwnUnknown(node *v1.Node, now time.Time) (changed []v1.NodeCondition) {
	for _, c := range node.Status.Conditions {
		if _, own := ownTaints[c.Type]; own && c.Status != v1.ConditionUnknown {
			changed = append(changed, unknown(c, "evictd stopped posting node status.", now))
		}
	}
	return changed
}

func unknown(c v1.NodeCondition, message string, now time.Time) v1.NodeCondition {
	c.Status, c.Reason, c.Message, c.LastTransitionTime = v1.ConditionUnknown, "NodeStatusUnknown", message, metav1.Time{Time: now}
	return c
}

// with is a copy of a node with changed conditions.
func with(node *v1.Node, changed []v1.NodeCondition) *v1.Node {
	if len(changed) == 0 {
		return node
	}
	copied := *node
	copied.Status.Conditions = slices.Clone(node.Status.Conditions)
	for _, c := range changed {
		if i := indexOf(copied.Status.Conditions, c.Type); i >= 0 {
			copied.Status.Conditions[i] = c
		} else {
			copied.Status.Conditions = append(copied.Status.Conditions, c)
		}
	}
	return &copied
}

func indexOf(conditions []v1.NodeCondition, kind v1.NodeConditionType) int {
	return slices.IndexFunc(conditions, func(c v1.NodeCondition) bool { return c.Type == kind })
}

// readiness is the status of the condition Ready; empty: there is none.
func readiness(node *v1.Node) v1.ConditionStatus {
	if i := indexOf(node.Status.Conditions, v1.NodeReady); i >= 0 {
		return node.Status.Conditions[i].Status
	}
	return ""
}

// retaint computes the taints of a node: the NoSchedule taints of its conditions
// and of spec.unschedulable, the given NoExecute taint of not-ready and unreachable
// or none, and all other taints unchanged. changed is false if the node has these.
func retaint(node *v1.Node, noExecute string, now time.Time) (taints []v1.Taint, changed bool) {
	var wanted []v1.Taint
	for _, key := range admission.ImpliedTaints(node) {
		wanted = append(wanted, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
	}
	for _, c := range node.Status.Conditions {
		if key, own := ownTaints[c.Type]; own && c.Status == v1.ConditionTrue {
			wanted = append(wanted, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
		}
	}
	if noExecute != "" {
		wanted = append(wanted, v1.Taint{Key: noExecute, Effect: v1.TaintEffectNoExecute})
	}
	for _, taint := range node.Spec.Taints {
		if isOurs(&taint) && !has(wanted, &taint) {
			changed = true
			continue
		}
		taints = append(taints, taint)
	}
	for _, taint := range wanted {
		if !has(taints, &taint) {
			changed = true
			taint.TimeAdded = &metav1.Time{Time: now}
			taints = append(taints, taint)
		}
	}
	return taints, changed
}

// isOurs reports whether retaint manages a taint.
func isOurs(taint *v1.Taint) bool {
	switch taint.Effect {
	case v1.TaintEffectNoSchedule:
		return admission.ImpliesTaint(taint.Key) || slices.Contains(slices.Collect(maps.Values(ownTaints)), taint.Key)
	case v1.TaintEffectNoExecute:
		return taint.Key == v1.TaintNodeNotReady || taint.Key == v1.TaintNodeUnreachable
	}
	return false
}

func has(taints []v1.Taint, taint *v1.Taint) bool {
	return slices.ContainsFunc(taints, func(t v1.Taint) bool { return t.MatchTaint(taint) })
}
