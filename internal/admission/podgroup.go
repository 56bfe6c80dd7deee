package admission

import (
	"fmt"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CompletePodGroup gives a PodGroup the disruption mode single and the priority of its
// class, or of the global default class. Its policy is basic or gang.
func (c *Classes) CompletePodGroup(group *schedulingv1beta1.PodGroup) (faults field.ErrorList) {
	spec, path := &group.Spec, field.NewPath("spec")
	if spec.DisruptionMode == nil {
		spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
	}
	policy := path.Child("schedulingPolicy")
	switch gang := spec.SchedulingPolicy.Gang; {
	case (gang == nil) == (spec.SchedulingPolicy.Basic == nil):
		faults = append(faults, field.Invalid(policy, "", "must specify exactly one of: `basic`, `gang`"))
	case gang != nil && gang.MinCount < 1:
		faults = append(faults, field.Invalid(policy.Child("gang", "minCount"), gang.MinCount, "must be greater than or equal to 1"))
	}
	class, known := c.defaultPriority, true
	if spec.PriorityClassName != "" {
		class, known = c.priority[spec.PriorityClassName]
	} else if spec.Priority != nil {
		class = nil
	}
	switch {
	case !known:
		faults = append(faults, field.Invalid(path.Child("priorityClassName"), spec.PriorityClassName, fmt.Sprintf("no PriorityClass with name %s was found", spec.PriorityClassName)))
	case class != nil:
		spec.PriorityClassName, spec.Priority = class.Name, new(class.Value)
	}
	return faults
}
