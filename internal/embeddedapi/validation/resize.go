package validation

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/podspec"
)

// Resize checks a pod whose resources an update has changed, as ValidatePodResize of Kubernetes' core validation, with the
// same texts: cpu and memory change, stay where they were, and keep the class of quality of service.
func Resize(pod, before *v1.Pod) field.ErrorList {
	if _, static := before.Annotations[v1.MirrorPodAnnotationKey]; static {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if before.Spec.OS != nil && before.Spec.OS.Name == v1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	faults, at := Pod(pod, before), field.NewPath("spec")
	if class := podspec.ComputeQOSClass(pod); class != before.Status.QOSClass && (before.Status.QOSClass != "" || class != podspec.ComputeQOSClass(before)) {
		faults = append(faults, field.Invalid(at, pod.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	statuses := before.Status.ContainerStatuses
	if i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.State.Running != nil }); i >= 0 && statuses[i].Resources == nil {
		faults = append(faults, field.Forbidden(at, "Pod running on node without support for resize"))
	}
	own, owned := ptr.Deref(pod.Spec.Resources, v1.ResourceRequirements{}), ptr.Deref(before.Spec.Resources, v1.ResourceRequirements{})
	faults = append(faults, checkRemoved(&own, &owned, "pod-level resource", at.Child("resources"))...)
	if !onlyCompute(own, owned) {
		faults = append(faults, field.Forbidden(at, "only cpu and memory resources are mutable at pod-level"))
	}
	inits := at.Child("initContainers")
	moved := append(checkOrder(pod.Spec.Containers, before.Spec.Containers, at, "containers"), checkOrder(pod.Spec.InitContainers, before.Spec.InitContainers, at, "initContainers")...)
	if len(moved) > 0 {
		return append(faults, moved...)
	}
	for i, was := range before.Spec.InitContainers {
		is, at := pod.Spec.InitContainers[i], inits.Index(i)
		faults = append(faults, checkRemoved(&is.Resources, &was.Resources, "resource", at.Child("resources"))...)
		if changed := !apiequality.Semantic.DeepEqual(is, was); changed && ptr.Deref(was.RestartPolicy, "") != v1.ContainerRestartPolicyAlways &&
			slices.ContainsFunc(is.ResizePolicy, func(p v1.ContainerResizePolicy) bool { return p.RestartPolicy == v1.RestartContainer }) {
			faults = append(faults, field.Forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
		}
		if !onlyResized(is, was) {
			faults = append(faults, field.Forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable"))
		}
	}
	for i, was := range before.Spec.Containers {
		is := pod.Spec.Containers[i]
		faults = append(faults, checkRemoved(&is.Resources, &was.Resources, "resource", at.Child("containers").Index(i).Child("resources"))...)
		if !onlyResized(is, was) {
			faults = append(faults, field.Forbidden(at, "only cpu and memory resources are mutable"))
		}
	}
	return faults
}

// checkOrder refuses to add, remove, rename and move containers.
func checkOrder(now, were []v1.Container, at *field.Path, list string) (faults field.ErrorList) {
	at = at.Child(list)
	if len(now) != len(were) {
		return field.ErrorList{field.Forbidden(at, list+" may not be added or removed on resize")}
	}
	for i := range were {
		if now[i].Name != were[i].Name {
			faults = append(faults, field.Forbidden(at.Index(i).Child("name"), list+" may not be renamed or reordered on resize"))
		}
	}
	return faults
}

// checkRemoved refuses to remove an amount.
func checkRemoved(now, were *v1.ResourceRequirements, what string, at *field.Path) (faults field.ErrorList) {
	for _, list := range []struct {
		name      string
		now, were v1.ResourceList
	}{{"requests", now.Requests, were.Requests}, {"limits", now.Limits, were.Limits}} {
		for name := range list.were {
			if _, has := list.now[name]; !has {
				faults = append(faults, field.Forbidden(at.Child(list.name), what+" "+list.name+" cannot be removed"))
				break
			}
		}
	}
	return faults
}

// onlyResized says that of a container nothing but cpu and memory has changed.
func onlyResized(now, was v1.Container) bool {
	if !onlyCompute(now.Resources, was.Resources) {
		return false
	}
	now.Resources = was.Resources
	return apiequality.Semantic.DeepEqual(now, was)
}

// onlyCompute says that nothing but cpu and memory has changed.
func onlyCompute(now, were v1.ResourceRequirements) bool {
	for _, list := range []*v1.ResourceList{&now.Requests, &now.Limits, &were.Requests, &were.Limits} {
		*list = maps.Clone(*list)
		delete(*list, v1.ResourceCPU)
		delete(*list, v1.ResourceMemory)
	}
	return apiequality.Semantic.DeepEqual(now, were)
}
