package config

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Group of the arguments that kube-scheduler does not have.
var Group = schema.GroupVersion{Group: "evictd.io", Version: "v1"}

// NodePressureArgs are the arguments of the plugin NodePressure.
type NodePressureArgs struct {
	metav1.TypeMeta `json:",inline"`
	// Conditions that reject nodes: MemoryPressure, DiskPressure and PIDPressure,
	// including evictd's names. Default all; an empty list: none.
	Conditions []v1.NodeConditionType `json:"conditions"`
	// Headroom uses the levels that evictd publishes. Default true.
	Headroom *bool `json:"headroom,omitempty"`
	// EvictionHalfLife is the half-life of the score penalty of an eviction; 0: no
	// penalty. Default 10m.
	EvictionHalfLife *metav1.Duration `json:"evictionHalfLife,omitempty"`
	// Ramp is the duration of the score penalty of a recovered node; 0: no penalty.
	// Default 5m.
	Ramp *metav1.Duration `json:"ramp,omitempty"`
}

func (a *NodePressureArgs) DeepCopyObject() runtime.Object {
	b := *a
	return &b // pointers are never written through
}

func pressures() []v1.NodeConditionType {
	return []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}
}

func completePressure(args *NodePressureArgs) {
	if args.Conditions == nil {
		args.Conditions = pressures()
	}
	orPointer(&args.Headroom, true)
	orPointer(&args.EvictionHalfLife, metav1.Duration{Duration: 10 * time.Minute})
	orPointer(&args.Ramp, metav1.Duration{Duration: 5 * time.Minute})
}

func checkPressure(path *field.Path, args *NodePressureArgs) (faults field.ErrorList) {
	for i, condition := range args.Conditions {
		if !slices.Contains(pressures(), condition) {
			faults = append(faults, field.NotSupported(path.Child("conditions").Index(i), condition, pressures()))
		}
	}
	for _, d := range []struct {
		name  string
		value metav1.Duration
	}{{"evictionHalfLife", *args.EvictionHalfLife}, {"ramp", *args.Ramp}} {
		if d.value.Duration < 0 {
			faults = append(faults, field.Invalid(path.Child(d.name), d.value.Duration.String(), "must not be negative"))
		}
	}
	return faults
}
