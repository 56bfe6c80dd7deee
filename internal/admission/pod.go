package admission

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/podspec"
)

// CompletePod completes a pod and returns everything that an API server would
// refuse about it. A pod that it has completed before stays as it is.
func (c *Classes) CompletePod(pod *v1.Pod) (faults field.ErrorList) {
	path := field.NewPath("spec")
	faults = append(faults, checkRequests(&pod.Spec, path)...)
	faults = append(faults, CheckLabels(pod.Spec.NodeSelector, path.Child("nodeSelector"))...)
	faults = append(faults, CheckSelectors(&pod.Spec, path)...)
	return append(faults, c.SetPod(pod)...)
}

// SetPod completes a pod and returns what its classes do not allow.
func (c *Classes) SetPod(pod *v1.Pod) (faults field.ErrorList) {
	setDefaults(pod)
	faults = c.SetClasses(pod)
	setSpread(pod)
	setAffinity(pod)
	return faults
}

// SetClasses gives a pod what its classes and kube-apiserver's admission plugins add to it, and returns what the classes do not allow.
func (c *Classes) SetClasses(pod *v1.Pod) (faults field.ErrorList) {
	path := field.NewPath("spec")
	faults = append(c.setPriority(pod, path), c.setRuntime(pod, path)...)
	pod.Status.QOSClass = podspec.ComputeQOSClass(pod)
	SetTolerations(pod)
	return faults
}

// CompleteStored completes a pod that an API server has admitted: its priority, its
// preemptionPolicy, its overhead and its tolerations are those that it has, whatever
// its classes are now.
func CompleteStored(pod *v1.Pod) {
	setDefaults(pod)
	pod.Spec.PreemptionPolicy = new(ptr.Deref(pod.Spec.PreemptionPolicy, v1.PreemptLowerPriority))
	pod.Status.QOSClass = podspec.ComputeQOSClass(pod)
	setSpread(pod)
	setAffinity(pod)
}

func setDefaults(pod *v1.Pod) {
	spec := &pod.Spec
	spec.SchedulerName = cmp.Or(spec.SchedulerName, v1.DefaultSchedulerName)
	spec.RestartPolicy = cmp.Or(spec.RestartPolicy, v1.RestartPolicyAlways)
	spec.TerminationGracePeriodSeconds = new(ptr.Deref(spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds))
	setPorts(spec)
	podspec.SetDefaultRequests(pod)
}

func containers(spec *v1.PodSpec) iter.Seq2[string, *v1.Container] {
	return func(yield func(string, *v1.Container) bool) {
		for _, list := range []struct {
			name       string
			containers []v1.Container
		}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
			for i := range list.containers {
				if !yield(fmt.Sprintf("%s[%d]", list.name, i), &list.containers[i]) {
					return
				}
			}
		}
	}
}

// setPorts makes ports TCP and, in the host's network, ports of the host.
func setPorts(spec *v1.PodSpec) {
	for _, container := range containers(spec) {
		for i := range container.Ports {
			port := &container.Ports[i]
			port.Protocol = cmp.Or(port.Protocol, v1.ProtocolTCP)
			if spec.HostNetwork && port.HostPort == 0 {
				port.HostPort = port.ContainerPort
			}
		}
	}
}

// checkRequests refuses amounts that are negative and requests above their limit.
func checkRequests(spec *v1.PodSpec, path *field.Path) (faults field.ErrorList) {
	check := func(path *field.Path, resources *v1.ResourceRequirements) {
		faults = append(faults, checkAmounts(path.Child("requests"), resources.Requests)...)
		faults = append(faults, checkAmounts(path.Child("limits"), resources.Limits)...)
		for _, name := range slices.Sorted(maps.Keys(resources.Limits)) {
			request, given := resources.Requests[name]
			if limit := resources.Limits[name]; given && request.Cmp(limit) > 0 {
				faults = append(faults, field.Invalid(path.Child("requests"), request.String(),
					fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
			}
		}
	}
	for name, container := range containers(spec) {
		check(path.Child(name, "resources"), &container.Resources)
	}
	if spec.Resources != nil {
		check(path.Child("resources"), spec.Resources)
	}
	return append(faults, checkAmounts(path.Child("overhead"), spec.Overhead)...)
}

// setSpread merges matchLabelKeys into the selectors of the pod's constraints.
func setSpread(pod *v1.Pod) {
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		mergeKeys(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, pod.Labels)
	}
}

// setAffinity merges matchLabelKeys and mismatchLabelKeys into the selectors of
// the pod's (anti-)affinity terms.
func setAffinity(pod *v1.Pod) {
	affinity := ptr.Deref(pod.Spec.Affinity, v1.Affinity{})
	if a := affinity.PodAffinity; a != nil {
		mergeLabelKeys(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, pod.Labels)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		mergeLabelKeys(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, pod.Labels)
	}
}

func mergeLabelKeys(required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm, labels map[string]string) {
	for i := range required {
		mergeTerm(&required[i], labels)
	}
	for i := range preferred {
		mergeTerm(&preferred[i].PodAffinityTerm, labels)
	}
}

func mergeTerm(term *v1.PodAffinityTerm, labels map[string]string) {
	mergeKeys(term.LabelSelector, term.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
	mergeKeys(term.LabelSelector, term.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, labels)
}

// mergeKeys leaves out keys that the pod does not have. Without a selector it does nothing: no selector
// matches nothing.
func mergeKeys(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	if selector == nil {
		return
	}
	for _, key := range keys {
		value, has := labels[key]
		merged := slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == key && r.Operator == operator && slices.Equal(r.Values, []string{value})
		})
		if has && !merged {
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}
