package validation

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/internal/admission"
)

// ResourceClaim checks a claim of devices, or that it does not change. Expressions are not compiled.
func ResourceClaim(c, before *resourceapi.ResourceClaim) field.ErrorList {
	at := field.NewPath("spec")
	if before != nil {
		return same(c.Spec, before.Spec, at)
	}
	return checkDevices(&c.Spec.Devices, at.Child("devices"))
}

// ResourceClaimTemplate checks a template of claims, which does not change.
func ResourceClaimTemplate(t, before *resourceapi.ResourceClaimTemplate) field.ErrorList {
	at := field.NewPath("spec")
	faults := append(admission.CheckLabels(t.Spec.Labels, at.Child("metadata", "labels")), checkDevices(&t.Spec.Spec.Devices, at.Child("spec", "devices"))...)
	if before != nil {
		faults = append(faults, same(t.Spec, before.Spec, at)...)
	}
	return faults
}

func checkDevices(claim *resourceapi.DeviceClaim, at *field.Path) (faults field.ErrorList) {
	names, seen := map[string]bool{}, map[string]bool{}
	for i, request := range claim.Requests {
		at := at.Child("requests").Index(i)
		names[request.Name] = true
		for _, sub := range request.FirstAvailable {
			names[request.Name+"/"+sub.Name] = true
		}
		faults = append(faults, checkRequest(&request, at)...)
		faults = append(faults, once(seen, request.Name, at)...)
	}
	for i, c := range claim.Constraints {
		at := at.Child("constraints").Index(i)
		faults = append(faults, checkRequestNames(c.Requests, names, at.Child("requests"))...)
		switch {
		case c.MatchAttribute != nil:
			faults = append(faults, checkAttribute(string(*c.MatchAttribute), at.Child("matchAttribute"))...)
		case c.DistinctAttribute != nil:
			faults = append(faults, checkAttribute(string(*c.DistinctAttribute), at.Child("distinctAttribute"))...)
		default:
			faults = append(faults, field.Required(at, `exactly one of "matchAttribute" or "distinctAttribute" is required`))
		}
	}
	for i, config := range claim.Config {
		at := at.Child("config").Index(i)
		faults = append(faults, checkRequestNames(config.Requests, names, at.Child("requests"))...)
		faults = append(faults, checkConfig(&config.DeviceConfiguration, at)...)
	}
	return faults
}

// once refuses a second element with a name.
func once(seen map[string]bool, name string, at *field.Path) field.ErrorList {
	if seen[name] {
		return field.ErrorList{field.Duplicate(at, name)}
	}
	seen[name] = true
	return nil
}

func label(name string, at *field.Path) field.ErrorList {
	return valid(name, at, validation.IsDNS1123Label(name))
}

func checkRequest(r *resourceapi.DeviceRequest, at *field.Path) (faults field.ErrorList) {
	faults = label(r.Name, at.Child("name"))
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(faults, field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(faults, field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case r.Exactly != nil:
		e := r.Exactly
		return append(faults, checkExact(e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations, at.Child("exactly"))...)
	}
	seen := map[string]bool{}
	for i, sub := range r.FirstAvailable {
		at := at.Child("firstAvailable").Index(i)
		faults = append(faults, label(sub.Name, at.Child("name"))...)
		faults = append(faults, checkExact(sub.DeviceClassName, sub.Selectors, sub.AllocationMode, sub.Count, sub.Tolerations, at)...)
		faults = append(faults, once(seen, sub.Name, at)...)
	}
	return faults
}

func checkExact(class string, selectors []resourceapi.DeviceSelector, mode resourceapi.DeviceAllocationMode, count int64, tolerations []resourceapi.DeviceToleration, at *field.Path) field.ErrorList {
	faults := append(named(class, at.Child("deviceClassName"), nameOfObject), checkDeviceSelectors(selectors, at.Child("selectors"))...)
	switch of := at.Child("count"); {
	case mode == resourceapi.DeviceAllocationModeAll && count != 0:
		faults = append(faults, field.Invalid(of, count, "must not be specified when allocationMode is 'All'"))
	case mode == resourceapi.DeviceAllocationModeExactCount && count <= 0:
		faults = append(faults, field.Invalid(of, count, "must be greater than zero"))
	}
	faults = append(faults, known(mode, at.Child("allocationMode"), resourceapi.DeviceAllocationModeAll, resourceapi.DeviceAllocationModeExactCount)...)
	for i, t := range tolerations {
		at := at.Child("tolerations").Index(i)
		if t.Key != "" {
			faults = append(faults, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		faults = append(faults, supported(t.Operator, at.Child("operator"), resourceapi.DeviceTolerationOpEqual, resourceapi.DeviceTolerationOpExists)...)
		switch {
		case t.Operator == resourceapi.DeviceTolerationOpExists && t.Value != "":
			faults = append(faults, field.Invalid(at.Child("value"), t.Value, "must be empty for operator `Exists`"))
		case t.Operator == resourceapi.DeviceTolerationOpEqual:
			faults = append(faults, valid(t.Value, at.Child("value"), validation.IsValidLabelValue(t.Value))...)
		}
		if t.Effect != "" {
			faults = append(faults, known(t.Effect, at.Child("effect"), deviceEffects...)...)
		}
	}
	return faults
}

var deviceEffects = []resourceapi.DeviceTaintEffect{resourceapi.DeviceTaintEffectNoExecute, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNone}

func checkDeviceSelectors(all []resourceapi.DeviceSelector, at *field.Path) (faults field.ErrorList) {
	for i, selector := range all {
		if selector.CEL == nil {
			faults = append(faults, field.Required(at.Index(i).Child("cel"), ""))
		}
	}
	return faults
}

// checkRequestNames refuses names that are of no request of the claim.
func checkRequestNames(refs []string, names map[string]bool, at *field.Path) (faults field.ErrorList) {
	for i, ref := range refs {
		if !names[ref] {
			faults = append(faults, field.Invalid(at.Index(i), ref, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
		}
	}
	return faults
}

// checkAttribute checks the name of an attribute, with its domain.
func checkAttribute(name string, at *field.Path) field.ErrorList {
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		return field.ErrorList{field.Invalid(at, name, "must include a domain")}
	}
	return append(valid(domain, at, validation.IsDNS1123Subdomain(domain)), valid(id, at, validation.IsCIdentifier(id))...)
}

func checkConfig(c *resourceapi.DeviceConfiguration, at *field.Path) field.ErrorList {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at.Child("opaque"), "")}
	}
	return append(driverName(c.Opaque.Driver, at.Child("opaque", "driver")), given(string(c.Opaque.Parameters.Raw), at.Child("opaque", "parameters"))...)
}

// DeviceClass checks a class of devices.
func DeviceClass(c, _ *resourceapi.DeviceClass) field.ErrorList {
	at := field.NewPath("spec")
	faults := checkDeviceSelectors(c.Spec.Selectors, at.Child("selectors"))
	for i, config := range c.Spec.Config {
		faults = append(faults, checkConfig(&config.DeviceConfiguration, at.Child("config").Index(i))...)
	}
	if name := c.Spec.ExtendedResourceName; name != nil && !isExtended(v1.ResourceName(*name)) {
		faults = append(faults, field.Invalid(at.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return faults
}

// DeviceTaintRule checks a rule, and its change where before is not nil.
func DeviceTaintRule(r, before *resourceapi.DeviceTaintRule) (faults field.ErrorList) {
	at := field.NewPath("spec")
	if s, at := r.Spec.DeviceSelector, at.Child("deviceSelector"); s != nil {
		if s.Driver != nil {
			faults = append(faults, driverName(*s.Driver, at.Child("driver"))...)
		}
		if s.Pool != nil {
			faults = append(faults, poolName(*s.Pool, at.Child("pool"))...)
		}
		if s.Device != nil {
			faults = append(faults, label(*s.Device, at.Child("device"))...)
		}
	}
	return append(faults, checkDeviceTaint(&r.Spec.Taint, before != nil && before.Spec.Taint.Effect == r.Spec.Taint.Effect, at.Child("taint"))...)
}

func checkDeviceTaint(t *resourceapi.DeviceTaint, kept bool, at *field.Path) field.ErrorList {
	faults := metav1validation.ValidateLabelName(t.Key, at.Child("key"))
	if t.Value != "" {
		faults = append(faults, valid(t.Value, at.Child("value"), validation.IsValidLabelValue(t.Value))...)
	}
	if !kept {
		faults = append(faults, supported(t.Effect, at.Child("effect"), deviceEffects...)...)
	}
	return faults
}

func poolName(name string, at *field.Path) (faults field.ErrorList) {
	if name == "" {
		return given(name, at)
	}
	for part := range strings.SplitSeq(name, "/") {
		faults = append(faults, valid(part, at, validation.IsDNS1123Subdomain(part))...)
	}
	return faults
}
