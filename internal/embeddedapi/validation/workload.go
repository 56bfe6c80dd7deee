package validation

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// Template checks that of a controller's pods.
func Template(template *v1.PodTemplateSpec, at *field.Path) field.ErrorList {
	faults := admission.CheckLabels(template.Labels, at.Child("labels"))
	if len(template.Spec.EphemeralContainers) > 0 {
		faults = append(faults, field.Forbidden(at.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return append(faults, Spec(&template.Spec, "", at.Child("spec"))...)
}

// Workload checks the spec of a controller of pods, but its selector.
func Workload(object any) (faults field.ErrorList) {
	at := field.NewPath("spec")
	template := at.Child("template")
	switch o := object.(type) {
	case *appsv1.Deployment:
		return slices.Concat(checkDeployment(&o.Spec, at), Template(&o.Spec.Template, template), alwaysRestarts(&o.Spec.Template.Spec, template))
	case *appsv1.ReplicaSet:
		return slices.Concat(counts(at, count{"replicas", o.Spec.Replicas}, count{"minReadySeconds", &o.Spec.MinReadySeconds}), Template(&o.Spec.Template, template), alwaysRestarts(&o.Spec.Template.Spec, template))
	case *v1.ReplicationController:
		return ReplicationController(o)
	case *appsv1.StatefulSet:
		return slices.Concat(checkStatefulSet(&o.Spec, at), Template(withClaims(o), template), alwaysRestarts(&o.Spec.Template.Spec, template))
	case *appsv1.DaemonSet:
		return slices.Concat(checkDaemonSet(&o.Spec, at), Template(&o.Spec.Template, template), alwaysRestarts(&o.Spec.Template.Spec, template))
	case *batchv1.Job:
		return append(checkJob(&o.Spec, at), Template(&o.Spec.Template, template)...)
	case *batchv1.CronJob:
		job := at.Child("jobTemplate", "spec")
		return slices.Concat(checkCronJob(&o.Spec, at), checkJob(&o.Spec.JobTemplate.Spec, job), Template(&o.Spec.JobTemplate.Spec.Template, job.Child("template")))
	}
	return nil
}

// count is a number that is not negative.
type count struct {
	name string
	n    *int32
}

func counts(at *field.Path, all ...count) (faults field.ErrorList) {
	for _, c := range all {
		if c.n != nil {
			faults = append(faults, notNegative(*c.n, at.Child(c.name))...)
		}
	}
	return faults
}

func alwaysRestarts(spec *v1.PodSpec, at *field.Path) (faults field.ErrorList) {
	faults = known(spec.RestartPolicy, at.Child("spec", "restartPolicy"), v1.RestartPolicyAlways)
	if spec.ActiveDeadlineSeconds != nil {
		faults = append(faults, field.Forbidden(at.Child("spec", "activeDeadlineSeconds"), "is not supported in a controller whose pods always restart"))
	}
	return faults
}

func checkDeployment(spec *appsv1.DeploymentSpec, at *field.Path) field.ErrorList {
	faults := counts(at, count{"replicas", spec.Replicas}, count{"minReadySeconds", &spec.MinReadySeconds}, count{"revisionHistoryLimit", spec.RevisionHistoryLimit},
		count{"progressDeadlineSeconds", spec.ProgressDeadlineSeconds})
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil && *deadline <= spec.MinReadySeconds {
		faults = append(faults, field.Invalid(at.Child("progressDeadlineSeconds"), *deadline, "must be greater than minReadySeconds"))
	}
	at = at.Child("strategy")
	rolling, of := spec.Strategy.RollingUpdate, at.Child("rollingUpdate")
	switch spec.Strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if rolling != nil {
			faults = append(faults, field.Forbidden(of, "may not be specified when strategy `type` is 'Recreate'"))
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		if rolling == nil {
			return append(faults, field.Required(of, ""))
		}
		faults = append(faults, amountOrShare(rolling.MaxUnavailable, false, of.Child("maxUnavailable"))...)
		faults = append(faults, amountOrShare(rolling.MaxSurge, false, of.Child("maxSurge"))...)
		if isNone(rolling.MaxUnavailable) && isNone(rolling.MaxSurge) {
			faults = append(faults, field.Invalid(of.Child("maxUnavailable"), rolling.MaxUnavailable, "may not be 0 when `maxSurge` is 0"))
		}
		faults = append(faults, atMostAll(rolling.MaxUnavailable, of.Child("maxUnavailable"))...)
	default:
		faults = append(faults, field.NotSupported(at, spec.Strategy.Type, []string{"Recreate", "RollingUpdate"}))
	}
	return faults
}

func checkDaemonSet(spec *appsv1.DaemonSetSpec, at *field.Path) field.ErrorList {
	faults := counts(at, count{"minReadySeconds", &spec.MinReadySeconds}, count{"revisionHistoryLimit", spec.RevisionHistoryLimit})
	at = at.Child("updateStrategy")
	switch rolling, of := spec.UpdateStrategy.RollingUpdate, at.Child("rollingUpdate"); {
	case spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
	case spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType:
		faults = append(faults, field.NotSupported(at, spec.UpdateStrategy.Type, []string{"OnDelete", "RollingUpdate"}))
	case rolling == nil:
		faults = append(faults, field.Required(of, ""))
	default:
		for _, each := range []struct {
			name  string
			value *intstr.IntOrString
		}{{"maxUnavailable", rolling.MaxUnavailable}, {"maxSurge", rolling.MaxSurge}} {
			faults = append(faults, amountOrShare(each.value, true, of.Child(each.name))...)
		}
		switch none := isNone(rolling.MaxUnavailable); {
		case !none && !isNone(rolling.MaxSurge):
			faults = append(faults, field.Invalid(of.Child("maxSurge"), rolling.MaxSurge, "may not be set when maxUnavailable is non-zero"))
		case none && isNone(rolling.MaxSurge):
			faults = append(faults, field.Required(of.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
		}
	}
	return faults
}

func checkStatefulSet(spec *appsv1.StatefulSetSpec, at *field.Path) field.ErrorList {
	faults := counts(at, count{"replicas", spec.Replicas}, count{"minReadySeconds", &spec.MinReadySeconds})
	if policy := spec.PodManagementPolicy; policy != appsv1.OrderedReadyPodManagement && policy != appsv1.ParallelPodManagement {
		faults = append(faults, field.Invalid(at.Child("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'"))
	}
	if spec.Ordinals != nil {
		faults = append(faults, notNegative(spec.Ordinals.Start, at.Child("ordinals.start"))...)
	}
	if spec.ServiceName != "" {
		faults = append(faults, valid(spec.ServiceName, at.Child("serviceName"), validation.IsDNS1123Label(spec.ServiceName))...)
	}
	at = at.Child("updateStrategy")
	switch rolling, of := spec.UpdateStrategy.RollingUpdate, at.Child("rollingUpdate"); {
	case spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType:
		faults = append(faults, field.Invalid(at, spec.UpdateStrategy.Type, "must be 'RollingUpdate' or 'OnDelete'"))
	case rolling == nil:
	case spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		faults = append(faults, field.Invalid(of, "", "only allowed for updateStrategy 'RollingUpdate'"))
	default:
		faults = append(faults, counts(of, count{"partition", rolling.Partition})...)
		if rolling.MaxUnavailable != nil {
			faults = append(faults, amountOrShare(rolling.MaxUnavailable, true, of.Child("maxUnavailable"))...)
			if isNone(rolling.MaxUnavailable) {
				faults = append(faults, field.Invalid(of.Child("maxUnavailable"), rolling.MaxUnavailable, "cannot be 0"))
			}
		}
	}
	return faults
}

// withClaims is the template of a set's pods with the volumes that its controller adds, and without the
// names that it gives.
func withClaims(set *appsv1.StatefulSet) *v1.PodTemplateSpec {
	template := set.Spec.Template.DeepCopy()
	template.Spec.Hostname, template.Spec.Subdomain = "", ""
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		template.Spec.Volumes = slices.DeleteFunc(template.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
		template.Spec.Volumes = append(template.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
	return template
}

func checkJob(spec *batchv1.JobSpec, at *field.Path) field.ErrorList {
	faults := counts(at, count{"parallelism", spec.Parallelism}, count{"completions", spec.Completions}, count{"backoffLimit", spec.BackoffLimit},
		count{"ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished}, count{"backoffLimitPerIndex", spec.BackoffLimitPerIndex}, count{"maxFailedIndexes", spec.MaxFailedIndexes})
	faults = append(faults, notNegative(ptr.Deref(spec.ActiveDeadlineSeconds, 0), at.Child("activeDeadlineSeconds"))...)
	faults = append(faults, optional(spec.CompletionMode, at.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)...)
	indexed := ptr.Deref(spec.CompletionMode, "") == batchv1.IndexedCompletion
	if indexed && spec.Completions == nil {
		faults = append(faults, field.Required(at.Child("completions"), "when completion mode is Indexed"))
	}
	if most := spec.MaxFailedIndexes; most != nil {
		if spec.BackoffLimitPerIndex == nil {
			faults = append(faults, field.Required(at.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
		}
		if indexed && spec.Completions != nil && *most > *spec.Completions {
			faults = append(faults, field.Invalid(at.Child("maxFailedIndexes"), *most, "must be less than or equal to completions"))
		}
	}
	if nonIndexed := ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.NonIndexedCompletion; nonIndexed {
		for _, c := range []count{{"backoffLimitPerIndex", spec.BackoffLimitPerIndex}, {"maxFailedIndexes", spec.MaxFailedIndexes}} {
			if c.n != nil {
				faults = append(faults, field.Invalid(at.Child(c.name), *c.n, "requires indexed completion mode"))
			}
		}
	}
	switch policy, of := spec.Template.Spec.RestartPolicy, at.Child("template", "spec", "restartPolicy"); policy {
	case v1.RestartPolicyOnFailure, v1.RestartPolicyNever:
		if spec.PodFailurePolicy != nil && policy != v1.RestartPolicyNever {
			faults = append(faults, field.Invalid(of, policy, "must be Never when podFailurePolicy is specified"))
		}
	case v1.RestartPolicyAlways, "":
		faults = append(faults, field.Required(of, `valid values: "OnFailure", "Never"`))
	default:
		faults = append(faults, field.NotSupported(of, policy, []v1.RestartPolicy{v1.RestartPolicyOnFailure, v1.RestartPolicyNever}))
	}
	return faults
}

// amountOrShare checks a number or a percentage, where it is bounded one of at most 100 %.
func amountOrShare(value *intstr.IntOrString, bounded bool, at *field.Path) (faults field.ErrorList) {
	switch {
	case value == nil:
		return nil
	case value.Type == intstr.String:
		faults = valid(value.StrVal, at, validation.IsValidPercent(value.StrVal))
	default:
		faults = notNegative(value.IntVal, at)
	}
	if bounded {
		faults = append(faults, atMostAll(value, at)...)
	}
	return faults
}

func atMostAll(value *intstr.IntOrString, at *field.Path) field.ErrorList {
	if share, isShare := percent(value); isShare && share > 100 {
		return field.ErrorList{field.Invalid(at, value.StrVal, "must not be greater than 100%")}
	}
	return nil
}

func percent(value *intstr.IntOrString) (share int, isShare bool) {
	if value == nil || value.Type != intstr.String || len(validation.IsValidPercent(value.StrVal)) > 0 {
		return 0, false
	}
	share, err := intstr.GetScaledValueFromIntOrPercent(value, 100, true)
	return share, err == nil
}

// isNone says that a number or a percentage is 0.
func isNone(value *intstr.IntOrString) bool {
	if value == nil {
		return true
	}
	share, _ := percent(value)
	return share == 0 && (value.Type == intstr.String || value.IntVal == 0)
}
