package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PressureGroup is the group and version of NodePressureArgs.
var PressureGroup = schema.GroupVersion{Group: "evictd.io", Version: "v1"}

// NodePressureArgs are the arguments of the plugin NodePressure.
type NodePressureArgs struct {
	metav1.TypeMeta `json:",inline"`
	// Conditions: keep pods off nodes by their conditions. Default true.
	Conditions *bool `json:"conditions,omitempty"`
	// Headroom: go by the levels that evictd publishes. Default true.
	Headroom *bool `json:"headroom,omitempty"`
	// EvictionHalfLife is how long it takes until an eviction speaks half as much
	// against its node; 0 takes no heed of evictions. Default 10m.
	EvictionHalfLife *metav1.Duration `json:"evictionHalfLife,omitempty"`
	// Ramp is how long a node that has recovered is spared; 0 spares none.
	// Default 5m.
	Ramp *metav1.Duration `json:"ramp,omitempty"`
}

// DeepCopyObject copies the arguments.
func (a *NodePressureArgs) DeepCopyObject() runtime.Object {
	b := *a
	return &b // nothing that it points to is ever changed
}

func completePressure(args *NodePressureArgs) {
	orPointer(&args.Conditions, true)
	orPointer(&args.Headroom, true)
	orPointer(&args.EvictionHalfLife, metav1.Duration{Duration: 10 * time.Minute})
	orPointer(&args.Ramp, metav1.Duration{Duration: 5 * time.Minute})
}

func checkPressure(path *field.Path, args *NodePressureArgs) (faults field.ErrorList) {
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
