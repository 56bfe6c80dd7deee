package podspec

import (
	"slices"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
)

// ToleratesMemoryPressure says whether a pod tolerates the taint of the condition MemoryPressure,
// node.kubernetes.io/memory-pressure:NoSchedule.
func ToleratesMemoryPressure(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, toleratesMemoryPressure)
}

func toleratesMemoryPressure(t v1.Toleration) bool {
	return t.ToleratesTaint(logr.Discard(), &v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}, false)
}
