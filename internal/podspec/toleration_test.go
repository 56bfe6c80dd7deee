package podspec_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/podspec"
)

// rule: 6.2
func TestAPodToleratesMemoryPressure(t *testing.T) {
	const key = v1.TaintNodeMemoryPressure
	for _, test := range []struct {
		toleration v1.Toleration
		want       bool
	}{
		{v1.Toleration{Key: key, Operator: v1.TolerationOpExists}, true},
		{v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}, true},
		{v1.Toleration{Key: key}, true},
		{v1.Toleration{Operator: v1.TolerationOpExists}, true},
		{v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}, false},
		{v1.Toleration{Key: key, Operator: v1.TolerationOpEqual, Value: "true"}, false},
		{v1.Toleration{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}, false},
		{v1.Toleration{Key: key, Operator: "Lt", Value: "1"}, false},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Tolerations: []v1.Toleration{{Key: "other", Operator: v1.TolerationOpExists}, test.toleration}}}
		if got := podspec.ToleratesMemoryPressure(pod); got != test.want {
			t.Errorf("%+v: %t", test.toleration, got)
		}
		if got := podspec.ToleratesMemoryPressure(podspec.Reduce(pod)); got != test.want {
			t.Errorf("%+v, reduced: %t", test.toleration, got)
		}
	}
}
