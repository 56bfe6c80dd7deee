package admission

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// AddRuntimeClass makes a class known to the pods that name it.
func (c *Classes) AddRuntimeClass(class *nodev1.RuntimeClass) (faults field.ErrorList) {
	c.runtime[class.Name] = class
	if class.Overhead != nil {
		faults = checkAmounts(field.NewPath("overhead", "podFixed"), class.Overhead.PodFixed)
	}
	return faults
}

// setRuntime gives a pod the overhead, node selector and tolerations of its
// runtime class. A pod without one keeps what it has.
func (c *Classes) setRuntime(pod *v1.Pod, path *field.Path) (faults field.ErrorList) {
	if pod.Spec.RuntimeClassName == nil {
		return nil
	}
	name := *pod.Spec.RuntimeClassName
	class, known := c.runtime[name]
	if !known {
		return field.ErrorList{field.Invalid(path.Child("runtimeClassName"), name, fmt.Sprintf("pod rejected: RuntimeClass %q not found", name))}
	}
	var overhead v1.ResourceList
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed
	}
	if pod.Spec.Overhead != nil && !maps.EqualFunc(pod.Spec.Overhead, overhead, equal) {
		faults = append(faults, field.Forbidden(path.Child("overhead"), "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
	}
	pod.Spec.Overhead = overhead.DeepCopy()
	if class.Scheduling == nil {
		return faults
	}
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		value := class.Scheduling.NodeSelector[key]
		if own, given := pod.Spec.NodeSelector[key]; given && own != value {
			faults = append(faults, field.Invalid(path.Child("nodeSelector").Key(key), own, fmt.Sprintf("conflict: RuntimeClass %q selects %q", name, value)))
			continue
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	for i := range class.Scheduling.Tolerations {
		tolerate(pod, *class.Scheduling.Tolerations[i].DeepCopy())
	}
	return faults
}

func equal(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }
