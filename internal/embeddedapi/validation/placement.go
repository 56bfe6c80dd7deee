package validation

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// checkPlacement checks what decides on the node beside selectors.
func checkPlacement(spec *v1.PodSpec, at *field.Path) (faults field.ErrorList) {
	faults = append(faults, Tolerations(spec.Tolerations, at.Child("tolerations"))...)
	for i := range spec.TopologySpreadConstraints {
		faults = append(faults, checkSpread(spec.TopologySpreadConstraints, i, at.Child("topologySpreadConstraints").Index(i))...)
	}
	affinity, at := ptr.Deref(spec.Affinity, v1.Affinity{}), at.Child("affinity")
	if a := affinity.NodeAffinity; a != nil {
		for i, term := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			faults = append(faults, within(term.Weight, 1, 100, at.Child("nodeAffinity", preferred).Index(i).Child("weight"))...)
		}
	}
	if a := affinity.PodAffinity; a != nil {
		faults = append(faults, checkTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))...)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		faults = append(faults, checkTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))...)
	}
	return faults
}

const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func checkTerms(hard []v1.PodAffinityTerm, soft []v1.WeightedPodAffinityTerm, at *field.Path) (faults field.ErrorList) {
	for i := range hard {
		faults = append(faults, checkTerm(&hard[i], at.Child(required).Index(i))...)
	}
	for i := range soft {
		at := at.Child(preferred).Index(i)
		faults = append(faults, within(soft[i].Weight, 1, 100, at.Child("weight"))...)
		faults = append(faults, checkTerm(&soft[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return faults
}

func checkTerm(term *v1.PodAffinityTerm, at *field.Path) (faults field.ErrorList) {
	for _, namespace := range term.Namespaces {
		faults = append(faults, valid(namespace, at.Child("namespace"), apivalidation.ValidateNamespaceName(namespace, false))...)
	}
	faults = append(faults, checkLabelKeys(term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector, at)...)
	faults = append(faults, given(term.TopologyKey, at.Child("topologyKey"))...)
	return append(faults, metav1validation.ValidateLabelName(term.TopologyKey, at.Child("topologyKey"))...)
}

// checkLabelKeys refuses keys that are no names, that are both for and against, or that the selector has
// twice; mergeLabelKeys of package admission adds one requirement for a key.
func checkLabelKeys(match, mismatch []string, selector *metav1.LabelSelector, at *field.Path) (faults field.ErrorList) {
	for name, keys := range admission.InOrder(map[string][]string{"matchLabelKeys": match, "mismatchLabelKeys": mismatch}) {
		if len(keys) > 0 && selector == nil {
			faults = append(faults, field.Forbidden(at.Child(name), "must not be specified when labelSelector is not set"))
			continue
		}
		for i, key := range keys {
			faults = append(faults, metav1validation.ValidateLabelName(key, at.Child(name).Index(i))...)
		}
	}
	places := map[string]int{}
	for i, key := range match {
		places[key] = i
	}
	has := map[string]bool{}
	if selector != nil {
		for key := range selector.MatchLabels {
			has[key] = true
		}
		for _, e := range selector.MatchExpressions {
			if i, isKey := places[e.Key]; isKey && has[e.Key] {
				faults = append(faults, field.Invalid(at.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
			}
			has[e.Key] = true
		}
	}
	for _, key := range mismatch {
		if i, both := places[key]; both {
			faults = append(faults, field.Invalid(at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return faults
}

// checkSpread checks one of a pod's constraints.
func checkSpread(all []v1.TopologySpreadConstraint, i int, at *field.Path) (faults field.ErrorList) {
	c := &all[i]
	positive := func(n int32, name string) {
		if n <= 0 {
			faults = append(faults, field.Invalid(at.Child(name), n, "must be greater than zero"))
		}
	}
	positive(c.MaxSkew, "maxSkew")
	faults = append(faults, given(c.TopologyKey, at.Child("topologyKey"))...)
	faults = append(faults, known(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), v1.DoNotSchedule, v1.ScheduleAnyway)...)
	for _, other := range all[i+1:] {
		if other.TopologyKey == c.TopologyKey && other.WhenUnsatisfiable == c.WhenUnsatisfiable {
			faults = append(faults, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), c.TopologyKey))
			break
		}
	}
	if c.MinDomains != nil {
		positive(*c.MinDomains, "minDomains")
		if c.WhenUnsatisfiable != v1.DoNotSchedule {
			faults = append(faults, field.Invalid(at.Child("minDomains"), *c.MinDomains, "needs whenUnsatisfiable DoNotSchedule"))
		}
	}
	faults = append(faults, optional(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"), v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore)...)
	faults = append(faults, optional(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"), v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore)...)
	return append(faults, checkLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)...)
}

// Tolerations checks those of a pod.
func Tolerations(all []v1.Toleration, at *field.Path) (faults field.ErrorList) {
	for i, t := range all {
		at := at.Index(i)
		if t.Key != "" {
			faults = append(faults, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != v1.TolerationOpExists {
			faults = append(faults, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when `key` is empty"))
		}
		if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
			faults = append(faults, field.Invalid(at.Child("effect"), t.Effect, "must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case v1.TolerationOpEqual, "":
			if len(validation.IsValidLabelValue(t.Value)) > 0 {
				faults = append(faults, field.Invalid(at.Child("operator"), t.Value, "must be a valid label value"))
			}
		case v1.TolerationOpExists:
			if t.Value != "" {
				faults = append(faults, field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		default:
			faults = append(faults, field.NotSupported(at.Child("operator"), t.Operator, []v1.TolerationOperator{v1.TolerationOpEqual, v1.TolerationOpExists}))
		}
		if t.Effect != "" {
			faults = append(faults, checkEffect(t.Effect, at.Child("effect"))...)
		}
	}
	return faults
}

func checkEffect(effect v1.TaintEffect, at *field.Path) field.ErrorList {
	return supported(effect, at, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
}

// Taints checks those of a node.
func Taints(all []v1.Taint, at *field.Path) (faults field.ErrorList) {
	type pair struct {
		key    string
		effect v1.TaintEffect
	}
	seen := map[pair]bool{}
	for i, t := range all {
		at := at.Index(i)
		faults = append(faults, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		if len(validation.IsValidLabelValue(t.Value)) > 0 {
			faults = append(faults, field.Invalid(at.Child("value"), t.Value, "must be a valid label value"))
		}
		faults = append(faults, checkEffect(t.Effect, at.Child("effect"))...)
		if p := (pair{t.Key, t.Effect}); seen[p] {
			faults = append(faults, field.Duplicate(at, t))
		} else {
			seen[p] = true
		}
	}
	return faults
}
