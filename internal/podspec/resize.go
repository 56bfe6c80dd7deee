package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// AppliedMemoryLimit is the memory limit that the status of a pod shows of a container, bytes; false where it shows
// none. A kubelet that does not apply a resize, or has not yet, shows another one than the spec.
func AppliedMemoryLimit(status *v1.PodStatus, container string) (bytes int64, shown bool) {
	for _, all := range [][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range all {
			if c := &all[i]; c.Name == container && c.Resources != nil {
				limit, is := c.Resources.Limits[v1.ResourceMemory]
				return limit.Value(), is
			}
		}
	}
	return 0, false
}

// ResizeCondition is the condition by which a kubelet shows that it does not apply a resize of a pod, or has not yet;
// nil without one.
func ResizeCondition(status *v1.PodStatus) *v1.PodCondition {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; isOfResize(c) && c.Status == v1.ConditionTrue {
			return c
		}
	}
	return nil
}

func isOfResize(c *v1.PodCondition) bool {
	return c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress
}

// reduceResize keeps in a reduced pod what AppliedMemoryLimit and ResizeCondition read, of containers whose limit is not
// that of the spec.
func reduceResize(p *v1.Pod, status *v1.PodStatus) {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		limit := c.Resources.Limits.Memory().Value()
		if applied, shown := AppliedMemoryLimit(status, c.Name); shown && limit > 0 && applied != limit {
			memory := v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(applied, resource.BinarySI)}
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: c.Name, Resources: &v1.ResourceRequirements{Limits: memory}})
		}
	}
	if c := ResizeCondition(status); c != nil {
		p.Status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: shortText(c.Message)}}
	}
}
