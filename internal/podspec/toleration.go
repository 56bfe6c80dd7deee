package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ToleratesMemoryPressure says whether a pod tolerates the taint of the condition MemoryPressure,
// node.kubernetes.io/memory-pressure:NoSchedule.
func ToleratesMemoryPressure(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, toleratesMemoryPressure)
}

// toleratesMemoryPressure is the rule of v1.Toleration for a taint without a value.
func toleratesMemoryPressure(t v1.Toleration) bool {
	if t.Effect != "" && t.Effect != v1.TaintEffectNoSchedule || t.Key != "" && t.Key != v1.TaintNodeMemoryPressure {
		return false
	}
	switch t.Operator {
	case v1.TolerationOpExists:
		return true
	case "", v1.TolerationOpEqual:
		return t.Key != "" && t.Value == ""
	}
	return false
}
