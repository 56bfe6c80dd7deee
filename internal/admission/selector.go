package admission

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CheckSelectors refuses the selectors of a pod that an API server refuses. An API
// server accepts a bound of Gt or Lt that is no integer.
func CheckSelectors(spec *v1.PodSpec, path *field.Path) (faults field.ErrorList) {
	for i := range spec.TopologySpreadConstraints {
		faults = append(faults, checkLabelSelector(spec.TopologySpreadConstraints[i].LabelSelector, path.Child("topologySpreadConstraints").Index(i).Child("labelSelector"))...)
	}
	if spec.Affinity == nil {
		return faults
	}
	path = path.Child("affinity")
	if a := spec.Affinity.NodeAffinity; a != nil {
		faults = append(faults, checkNodeAffinity(a, path.Child("nodeAffinity"))...)
	}
	if a := spec.Affinity.PodAffinity; a != nil {
		faults = append(faults, checkTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if a := spec.Affinity.PodAntiAffinity; a != nil {
		faults = append(faults, checkTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return faults
}

const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func checkTerms(hard []v1.PodAffinityTerm, soft []v1.WeightedPodAffinityTerm, path *field.Path) (faults field.ErrorList) {
	check := func(term *v1.PodAffinityTerm, path *field.Path) {
		faults = append(faults, checkLabelSelector(term.LabelSelector, path.Child("labelSelector"))...)
		faults = append(faults, checkLabelSelector(term.NamespaceSelector, path.Child("namespaceSelector"))...)
	}
	for i := range hard {
		check(&hard[i], path.Child(required).Index(i))
	}
	for i := range soft {
		check(&soft[i].PodAffinityTerm, path.Child(preferred).Index(i).Child("podAffinityTerm"))
	}
	return faults
}

func checkLabelSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// CheckNodeSelector finds what an API server refuses in the terms of a selector of nodes.
func CheckNodeSelector(s *v1.NodeSelector, path *field.Path) (faults field.ErrorList) {
	path = path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		faults = append(faults, field.Required(path, "must have at least one node selector term"))
	}
	for i := range s.NodeSelectorTerms {
		faults = append(faults, checkNodeTerm(&s.NodeSelectorTerms[i], path.Index(i), validation.IsValidLabelValue)...)
	}
	return faults
}

// checkNodeAffinity accepts any value in preferred terms, as an API server does.
func checkNodeAffinity(a *v1.NodeAffinity, path *field.Path) (faults field.ErrorList) {
	if hard := a.RequiredDuringSchedulingIgnoredDuringExecution; hard != nil {
		faults = CheckNodeSelector(hard, path.Child(required))
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		term := &a.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference
		faults = append(faults, checkNodeTerm(term, path.Child(preferred).Index(i).Child("preference"), func(string) []string { return nil })...)
	}
	return faults
}

// valuesOf is the least and the largest number of values of an operator of node
// selectors; -1: any number.
var valuesOf = map[v1.NodeSelectorOperator][2]int{
	v1.NodeSelectorOpIn: {1, -1}, v1.NodeSelectorOpNotIn: {1, -1}, v1.NodeSelectorOpExists: {0, 0},
	v1.NodeSelectorOpDoesNotExist: {0, 0}, v1.NodeSelectorOpGt: {1, 1}, v1.NodeSelectorOpLt: {1, 1},
}

func checkNodeTerm(term *v1.NodeSelectorTerm, path *field.Path, faultsOfValue func(string) []string) (faults field.ErrorList) {
	for i, e := range term.MatchExpressions {
		path := path.Child("matchExpressions").Index(i)
		many, known := valuesOf[e.Operator]
		switch {
		case !known:
			faults = append(faults, field.Invalid(path.Child("operator"), e.Operator, "not a valid selector operator"))
		case many[1] == 0 && len(e.Values) > 0:
			faults = append(faults, field.Forbidden(path.Child("values"), "operator "+string(e.Operator)+" has no values"))
		case len(e.Values) < many[0] || many[1] > 0 && len(e.Values) > many[1]:
			faults = append(faults, field.Required(path.Child("values"), "not the number of values of operator "+string(e.Operator)))
		}
		faults = append(faults, metav1validation.ValidateLabelName(e.Key, path.Child("key"))...)
		for j, value := range e.Values {
			for _, fault := range faultsOfValue(value) {
				faults = append(faults, field.Invalid(path.Child("values").Index(j), value, fault))
			}
		}
	}
	for i, e := range term.MatchFields {
		path := path.Child("matchFields").Index(i)
		switch {
		case e.Operator != v1.NodeSelectorOpIn && e.Operator != v1.NodeSelectorOpNotIn:
			faults = append(faults, field.Invalid(path.Child("operator"), e.Operator, "not a valid selector operator"))
		case len(e.Values) != 1:
			faults = append(faults, field.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
		if e.Key != metav1.ObjectNameField {
			faults = append(faults, field.Invalid(path.Child("key"), e.Key, "not a valid field selector key"))
			continue
		}
		for j, value := range e.Values {
			for _, fault := range validation.IsDNS1123Subdomain(value) {
				faults = append(faults, field.Invalid(path.Child("values").Index(j), value, fault))
			}
		}
	}
	return faults
}
