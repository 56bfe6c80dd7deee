package validation

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// Autoscaler checks what an autoscaler scales, its bounds, its metrics and its speed.
func Autoscaler(a, before *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	spec, at, ref := &a.Spec, field.NewPath("spec"), a.Spec.ScaleTargetRef
	faults := checkReference(&ref, at.Child("scaleTargetRef"))
	same := before != nil && before.Spec.ScaleTargetRef.APIVersion == ref.APIVersion && before.Spec.ScaleTargetRef.Kind == ref.Kind
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); !same && (err != nil || gv.Group == "" && ref.Kind != "ReplicationController") {
		faults = append(faults, field.Invalid(at.Child("scaleTargetRef", "apiVersion"), ref.APIVersion, "must specify API group"))
	}
	outside := false
	for i, metric := range spec.Metrics {
		outside = outside || metric.Type == autoscalingv2.ObjectMetricSourceType || metric.Type == autoscalingv2.ExternalMetricSourceType
		faults = append(faults, checkMetric(&metric, at.Child("metrics").Index(i))...)
	}
	switch least := ptr.Deref(spec.MinReplicas, 1); {
	case least < 0:
		faults = append(faults, notNegative(least, at.Child("minReplicas"))...)
	case least == 0 && !outside:
		faults = append(faults, field.Forbidden(at.Child("metrics"), "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	switch most, at := spec.MaxReplicas, at.Child("maxReplicas"); {
	case most == 0:
		faults = append(faults, field.Required(at, "must be set and greater than 0"))
	case most < 0:
		faults = append(faults, field.Invalid(at, most, "must be greater than or equal to 1"))
	}
	if most := spec.MaxReplicas; most < ptr.Deref(spec.MinReplicas, 1) {
		faults = append(faults, field.Invalid(at.Child("maxReplicas"), most, "must be greater than or equal to `minReplicas`"))
	}
	if b := spec.Behavior; b != nil {
		faults = slices.Concat(faults, checkScaling(b.ScaleUp, at.Child("behavior", "scaleUp")), checkScaling(b.ScaleDown, at.Child("behavior", "scaleDown")))
	}
	return faults
}

func checkReference(r *autoscalingv2.CrossVersionObjectReference, at *field.Path) field.ErrorList {
	return append(named(r.Kind, at.Child("kind"), content.IsPathSegmentName), named(r.Name, at.Child("name"), content.IsPathSegmentName)...)
}

// checkMetric checks the first source of a metric, and that it is the one of its type.
func checkMetric(m *autoscalingv2.MetricSpec, at *field.Path) (faults field.ErrorList) {
	sources := []struct {
		of    autoscalingv2.MetricSourceType
		name  string
		set   bool
		check func(at *field.Path) field.ErrorList
	}{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList {
			faults := append(checkReference(&m.Object.DescribedObject, at.Child("describedObject")), checkMetricName(m.Object.Metric.Name, at)...)
			if _, err := schema.ParseGroupVersion(m.Object.DescribedObject.APIVersion); err != nil {
				faults = append(faults, field.Invalid(at.Child("describedObject", "apiVersion"), m.Object.DescribedObject.APIVersion, err.Error()))
			}
			return append(faults, checkTarget(&m.Object.Target, at.Child("target"), "", "averageValue", "value")...)
		}},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList {
			return append(checkMetricName(m.External.Metric.Name, at), checkTarget(&m.External.Target, at.Child("target"), "value", "averageValue", "value")...)
		}},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList {
			return append(checkMetricName(m.Pods.Metric.Name, at), checkTarget(&m.Pods.Target, at.Child("target"), "", "averageValue")...)
		}},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList {
			return append(given(string(m.Resource.Name), at.Child("name")), checkTarget(&m.Resource.Target, at.Child("target"), "averageValue", "averageUtilization", "averageValue")...)
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(at *field.Path) field.ErrorList {
			r := m.ContainerResource
			faults := given(string(r.Name), at.Child("name"))
			if r.Name != "" {
				faults = checkContainerResource(r.Name, at.Child("name"))
			}
			faults = append(faults, given(r.Container, at.Child("container"))...)
			if r.Container != "" {
				faults = append(faults, label(r.Container, at.Child("container"))...)
			}
			return append(faults, checkTarget(&r.Target, at.Child("target"), "averageValue", "averageUtilization", "averageValue")...)
		}},
	}
	var types []autoscalingv2.MetricSourceType
	present := 0
	for _, source := range sources {
		types = append(types, source.of)
		if source.set {
			present++
			if present == 1 {
				faults = append(faults, source.check(at.Child(source.name))...)
			}
		}
	}
	for _, source := range sources {
		switch expected := source.of == m.Type; {
		case expected && !source.set:
			faults = append(faults, field.Required(at.Child(source.name), "must populate information for the given metric source"))
		case !expected && source.set && present > 1:
			faults = append(faults, field.Forbidden(at.Child(source.name), "must populate the given metric source only"))
		}
	}
	if m.Type == "" {
		faults = append(faults, given("", at.Child("type"))...)
	}
	return append(faults, known(m.Type, at.Child("type"), types...)...)
}

func checkMetricName(name string, at *field.Path) field.ErrorList {
	return named(name, at.Child("metric", "name"), content.IsPathSegmentName)
}

// checkTarget checks the target of a metric, which has one of the needed fields, and the forbidden one not beside another.
func checkTarget(t *autoscalingv2.MetricTarget, at *field.Path, forbidden string, needed ...string) (faults field.ErrorList) {
	has := map[string]bool{"value": t.Value != nil, "averageValue": t.AverageValue != nil, "averageUtilization": t.AverageUtilization != nil}
	missing := slices.DeleteFunc(slices.Clone(needed), func(name string) bool { return has[name] })
	switch {
	case len(missing) == len(needed):
		faults = append(faults, field.Required(at.Child(needed[0]), "must set one of the targets of the metric"))
	case len(missing) == 0 && forbidden != "":
		faults = append(faults, field.Forbidden(at.Child(forbidden), "may not set two targets of the metric"))
	}
	if t.Type == "" {
		faults = append(faults, given("", at.Child("type"))...)
	}
	if !slices.Contains([]autoscalingv2.MetricTargetType{autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType}, t.Type) {
		faults = append(faults, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	for name, amount := range admission.InOrder(map[string]*resource.Quantity{"value": t.Value, "averageValue": t.AverageValue}) {
		if amount != nil && amount.Sign() != 1 {
			faults = append(faults, field.Invalid(at.Child(name), amount.String(), "must be positive"))
		}
	}
	if n := t.AverageUtilization; n != nil && *n < 1 {
		faults = append(faults, field.Invalid(at.Child("averageUtilization"), *n, "must be greater than 0"))
	}
	return faults
}

// checkScaling checks how fast an autoscaler adds or removes pods.
func checkScaling(r *autoscalingv2.HPAScalingRules, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	faults := slices.Concat(between(r.StabilizationWindowSeconds, 0, 3600, at.Child("stabilizationWindowSeconds")),
		optional(r.SelectPolicy, at.Child("selectPolicy"), autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect))
	at, tolerance := at.Child("policies"), at.Child("tolerance")
	if len(r.Policies) == 0 {
		faults = append(faults, field.Required(at, "must specify at least one Policy"))
	}
	for i, policy := range r.Policies {
		at := at.Index(i)
		faults = slices.Concat(faults, known(policy.Type, at.Child("type"), autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy),
			within(policy.Value, 1, 1<<31-1, at.Child("value")), within(policy.PeriodSeconds, 1, 1800, at.Child("periodSeconds")))
	}
	if r.Tolerance != nil && r.Tolerance.Sign() < 0 {
		faults = append(faults, field.Invalid(tolerance, r.Tolerance.String(), "must be greater than or equal to 0"))
	}
	return faults
}
