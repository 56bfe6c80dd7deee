package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/podspec"
)

const (
	maxUserPriority = 1_000_000_000
	systemPrefix    = "system-"
)

func systemPriorities() map[string]*schedulingv1.PriorityClass {
	classes := map[string]*schedulingv1.PriorityClass{}
	for name, value := range map[string]int32{
		podspec.SystemClusterCritical: podspec.SystemCriticalPriority, podspec.SystemNodeCritical: podspec.SystemNodeCriticalPriority,
	} {
		classes[name] = &schedulingv1.PriorityClass{
			ObjectMeta:       metav1.ObjectMeta{Name: name},
			Value:            value,
			PreemptionPolicy: ptr.To(v1.PreemptLowerPriority),
		}
	}
	return classes
}

// AddPriorityClass completes a class. It refuses priorities and names that are the
// system's, and a second global default.
func (c *Classes) AddPriorityClass(class *schedulingv1.PriorityClass) (faults field.ErrorList) {
	class.PreemptionPolicy = new(ptr.Deref(class.PreemptionPolicy, v1.PreemptLowerPriority))
	if policies := []v1.PreemptionPolicy{v1.PreemptLowerPriority, v1.PreemptNever}; !slices.Contains(policies, *class.PreemptionPolicy) {
		faults = append(faults, field.NotSupported(field.NewPath("preemptionPolicy"), *class.PreemptionPolicy, policies))
	}
	system, known := systemPriorities()[class.Name]
	switch {
	case known && class.Value != system.Value:
		faults = append(faults, field.Forbidden(field.NewPath("value"), fmt.Sprintf("value of %s PriorityClass must be %d", class.Name, system.Value)))
	case known && class.GlobalDefault:
		faults = append(faults, field.Forbidden(field.NewPath("globalDefault"), fmt.Sprintf("globalDefault of %s PriorityClass must be false", class.Name)))
	case !known && strings.HasPrefix(class.Name, systemPrefix):
		faults = append(faults, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only"))
	case !known && class.Value > maxUserPriority:
		faults = append(faults, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %d", maxUserPriority)))
	}
	if class.GlobalDefault && c.defaultPriority != nil {
		faults = append(faults, field.Forbidden(field.NewPath("globalDefault"),
			fmt.Sprintf("PriorityClass %s is already marked as default. Only one default can exist", c.defaultPriority.Name)))
	}
	if class.GlobalDefault && (c.defaultPriority == nil || class.Value < c.defaultPriority.Value) { // an API server with two uses the lower one
		c.defaultPriority = class
	}
	c.priority[class.Name] = class
	return faults
}

// setPriority resolves the class that a pod names, or else the global default. A
// priority that is given without a class stays as it is.
func (c *Classes) setPriority(pod *v1.Pod, path *field.Path) (faults field.ErrorList) {
	spec := &pod.Spec
	class, known := c.defaultPriority, true
	if spec.PriorityClassName != "" {
		class, known = c.priority[spec.PriorityClassName]
	} else if spec.Priority != nil {
		class = nil
	}
	if !known {
		return field.ErrorList{field.Invalid(path.Child("priorityClassName"), spec.PriorityClassName,
			fmt.Sprintf("no PriorityClass with name %s was found", spec.PriorityClassName))}
	}
	if class == nil {
		spec.Priority = new(ptr.Deref(spec.Priority, 0))
		spec.PreemptionPolicy = new(ptr.Deref(spec.PreemptionPolicy, v1.PreemptLowerPriority))
		return nil
	}
	const computed = "must not differ from what the PriorityClass says, %v"
	if p := ptr.Deref(spec.Priority, class.Value); p != class.Value {
		faults = append(faults, field.Invalid(path.Child("priority"), p, fmt.Sprintf(computed, class.Value)))
	}
	if p := ptr.Deref(spec.PreemptionPolicy, *class.PreemptionPolicy); p != *class.PreemptionPolicy {
		faults = append(faults, field.Invalid(path.Child("preemptionPolicy"), p, fmt.Sprintf(computed, *class.PreemptionPolicy)))
	}
	spec.PriorityClassName = class.Name
	spec.Priority = new(class.Value)
	spec.PreemptionPolicy = new(*class.PreemptionPolicy)
	return faults
}
