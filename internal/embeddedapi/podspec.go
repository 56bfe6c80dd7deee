package embeddedapi

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/validation"
	"github.com/evictd/evictd/internal/podspec"
)

// checkWorkload checks a controller of pods, and of apps/v1 that its selector selects them.
func checkWorkload(object store.Object) (faults utilvalidation.ErrorList) {
	if object.GetObjectKind().GroupVersionKind().Group == appsv1.GroupName {
		spec := fieldOf(object, "Spec")
		required, isSelector := spec.FieldByName("Selector").Interface().(*metav1.LabelSelector)
		if template, ok := spec.FieldByName("Template").Interface().(v1.PodTemplateSpec); ok && isSelector {
			faults = checkSelector(required, template.Labels, utilvalidation.NewPath("spec"))
			if _, isSet := object.(*appsv1.DaemonSet); isSet && required == nil {
				faults = faults[1:] // a missing selector alone is no fault there
			}
		}
	}
	return append(faults, validation.Workload(object)...)
}

func checkSelector(required *metav1.LabelSelector, has map[string]string, path *utilvalidation.Path) (faults utilvalidation.ErrorList) {
	if required == nil {
		faults = append(faults, utilvalidation.Required(path.Child("selector"), ""))
	}
	faults = append(faults, metav1validation.ValidateLabelSelector(required, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	selector, err := metav1.LabelSelectorAsSelector(required)
	switch {
	case err != nil:
		return append(faults, utilvalidation.Invalid(path.Child("selector"), required, err.Error()))
	case selector.Empty():
		return append(faults, utilvalidation.Invalid(path.Child("selector"), required, "empty selector is invalid"))
	case !selector.Matches(labels.Set(has)):
		faults = append(faults, utilvalidation.Invalid(path.Child("template", "metadata", "labels"), has, "`selector` does not match template `labels`"))
	}
	return faults
}

// takeMutable copies the mutable parts of a pod's spec. While the pod has scheduling
// gates these include the constraints on its node.
func takeMutable(spec, from *v1.PodSpec) {
	if len(spec.SchedulingGates) > 0 {
		spec.NodeSelector = from.NodeSelector
		switch {
		case from.Affinity == nil && spec.Affinity != nil && spec.Affinity.PodAffinity == nil && spec.Affinity.PodAntiAffinity == nil:
			spec.Affinity = nil
		case from.Affinity != nil:
			spec.Affinity = new(ptr.Deref(spec.Affinity, v1.Affinity{}))
			spec.Affinity.NodeAffinity = from.Affinity.NodeAffinity
		case spec.Affinity != nil:
			spec.Affinity.NodeAffinity = nil
		}
	}
	for _, list := range [][2][]v1.Container{{spec.Containers, from.Containers}, {spec.InitContainers, from.InitContainers}} {
		for i := range list[0] {
			list[0][i].Image = list[1][i].Image
		}
	}
	spec.ActiveDeadlineSeconds = from.ActiveDeadlineSeconds
	spec.Tolerations = from.Tolerations
	spec.SchedulingGates = from.SchedulingGates
	if ptr.Deref(spec.TerminationGracePeriodSeconds, 0) < 0 {
		spec.TerminationGracePeriodSeconds = from.TerminationGracePeriodSeconds
	}
}

// completePodChange keeps what admission has computed for a new pod where an update leaves it
// out, as the plugin Priority and the pod strategy of kube-apiserver do.
func completePodChange(pod, before *v1.Pod) {
	keep(&pod.Spec.Priority, before.Spec.Priority)
	keep(&pod.Spec.PreemptionPolicy, before.Spec.PreemptionPolicy)
	keep(&pod.Spec.Resources, before.Spec.Resources)
}

func keep[T any](field **T, before *T) {
	if *field == nil {
		*field = before
	}
}

// checkPodChange follows ValidatePodUpdate of Kubernetes' core validation.
func checkPodChange(pod, before *v1.Pod) utilvalidation.ErrorList {
	path := utilvalidation.NewPath("spec")
	completePodChange(pod, before)
	class := pod.Status.QOSClass
	pod.Status.QOSClass = podspec.ComputeQOSClass(pod)
	admission.SetTolerations(pod)
	pod.Status.QOSClass = class
	faults := validation.Pod(pod, before)
	for _, list := range []struct {
		name      string
		now, were []v1.Container
	}{{"containers", pod.Spec.Containers, before.Spec.Containers}, {"initContainers", pod.Spec.InitContainers, before.Spec.InitContainers}} {
		if len(list.now) != len(list.were) {
			return append(faults, utilvalidation.Forbidden(path.Child(list.name), "pod updates may not add or remove containers"))
		}
		for i, c := range list.now {
			switch at := path.Child(list.name).Index(i).Child("image"); {
			case c.Image == "":
				faults = append(faults, utilvalidation.Required(at, ""))
			case strings.TrimSpace(c.Image) != c.Image:
				faults = append(faults, utilvalidation.Invalid(at, c.Image, "must not have leading or trailing whitespace"))
			}
		}
	}
	switch at, deadline, was := path.Child("activeDeadlineSeconds"), pod.Spec.ActiveDeadlineSeconds, before.Spec.ActiveDeadlineSeconds; {
	case deadline == nil && was != nil:
		faults = append(faults, utilvalidation.Invalid(at, deadline, "must not update from a positive integer to nil value"))
	case deadline != nil && *deadline < 0:
		return append(faults, utilvalidation.Invalid(at, *deadline, "must be greater than or equal to 0"))
	case deadline != nil && was != nil && *was < *deadline:
		return append(faults, utilvalidation.Invalid(at, *deadline, "must be less than or equal to previous value"))
	}
	return append(faults, checkPodSpecChange(&pod.Spec, &before.Spec, path)...)
}

func checkPodSpecChange(spec, before *v1.PodSpec, path *utilvalidation.Path) (faults utilvalidation.ErrorList) {
	kept := true
	for _, t := range before.Tolerations {
		if kept = slices.ContainsFunc(spec.Tolerations, func(has v1.Toleration) bool {
			has.TolerationSeconds = t.TolerationSeconds
			return apiequality.Semantic.DeepEqual(has, t)
		}); !kept {
			faults = append(faults, utilvalidation.Forbidden(path.Child("tolerations"), "existing toleration can not be modified except its tolerationSeconds"))
			break
		}
	}
	if kept {
		faults = append(faults, validation.Tolerations(spec.Tolerations, path.Child("tolerations"))...)
	}
	for i, gate := range spec.SchedulingGates {
		again := slices.Contains(spec.SchedulingGates[i+1:], gate) // the last of the name is reported
		if !slices.Contains(before.SchedulingGates, gate) && !again {
			faults = append(faults, utilvalidation.Forbidden(path.Child("schedulingGates").Index(i).Child("name"), "only deletion is allowed, but found new scheduling gate '"+gate.Name+"'"))
		}
	}
	if len(before.SchedulingGates) > 0 {
		faults = append(faults, checkGatedChange(spec, before, path)...)
	}
	allowed := before.DeepCopy()
	takeMutable(allowed, spec)
	if !apiequality.Semantic.DeepEqual(allowed, spec) {
		faults = append(faults, utilvalidation.Forbidden(path, "pod updates may not change fields other than `spec.containers[*].image`,"+
			"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
			"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"))
	}
	return faults
}

// checkGatedChange refuses to weaken the constraints on the node of a pod with scheduling gates.
func checkGatedChange(spec, before *v1.PodSpec, path *utilvalidation.Path) (faults utilvalidation.ErrorList) {
	for key, value := range admission.InOrder(before.NodeSelector) {
		if now, has := spec.NodeSelector[key]; !has || now != value {
			faults = append(faults, utilvalidation.Invalid(path.Child("nodeSelector"), spec.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	terms := func(spec *v1.PodSpec) []v1.NodeSelectorTerm {
		if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			return nil
		}
		return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	now, were := terms(spec), terms(before)
	at := path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if len(were) > 0 && len(now) != len(were) {
		return append(faults, utilvalidation.Invalid(at, "", "no additions/deletions to non-empty NodeSelectorTerms list are allowed"))
	}
	for i := range were {
		if !begins(now[i].MatchExpressions, were[i].MatchExpressions) || !begins(now[i].MatchFields, were[i].MatchFields) || len(were[i].MatchExpressions)+len(were[i].MatchFields) == 0 && len(now[i].MatchExpressions)+len(now[i].MatchFields) > 0 {
			faults = append(faults, utilvalidation.Invalid(at.Index(i), "", "only additions are allowed (no mutations or deletions)"))
		}
	}
	return faults
}

func begins(now, were []v1.NodeSelectorRequirement) bool {
	return len(now) >= len(were) && (len(were) == 0 || apiequality.Semantic.DeepEqual(now[:len(were)], were))
}
