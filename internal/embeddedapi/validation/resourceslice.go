package validation

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// ResourceSlice checks the pool and the devices of a slice, and its change where before is not nil.
func ResourceSlice(s, before *resourceapi.ResourceSlice) field.ErrorList {
	spec, at := &s.Spec, field.NewPath("spec")
	pool := at.Child("pool")
	faults := slices.Concat(driverName(spec.Driver, at.Child("driver")), poolName(spec.Pool.Name, pool.Child("name")), notNegative(spec.Pool.Generation, pool.Child("generation")))
	if spec.Pool.ResourceSliceCount <= 0 {
		faults = append(faults, field.Invalid(pool.Child("resourceSliceCount"), spec.Pool.ResourceSliceCount, "must be greater than zero"))
	}
	faults = append(faults, checkPlace(spec.NodeName, spec.NodeSelector, at, flag{"allNodes", spec.AllNodes}, flag{"perDeviceNodeSelection", spec.PerDeviceNodeSelection})...)
	if spec.NodeSelector != nil && len(spec.NodeSelector.NodeSelectorTerms) != 1 {
		faults = append(faults, field.Invalid(at.Child("nodeSelector", "nodeSelectorTerms"), len(spec.NodeSelector.NodeSelectorTerms), "must have exactly one node selector term"))
	}
	if spec.SharedCounters != nil && spec.Devices != nil {
		faults = append(faults, field.Invalid(at, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	most, were := resourceapi.ResourceSliceMaxDevices, map[string]*resourceapi.Device{}
	if slices.ContainsFunc(spec.Devices, func(d resourceapi.Device) bool { return len(d.Taints)+len(d.ConsumesCounters) > 0 }) {
		most = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	if before != nil {
		for i := range before.Spec.Devices {
			were[before.Spec.Devices[i].Name] = &before.Spec.Devices[i]
		}
		faults = slices.Concat(faults, same(spec.Pool.Name, before.Spec.Pool.Name, pool.Child("name")), same(spec.Driver, before.Spec.Driver, at.Child("driver")), same(spec.NodeName, before.Spec.NodeName, at.Child("nodeName")))
	}
	faults = append(faults, elements(spec.Devices, most, func(d resourceapi.Device) string { return d.Name }, func(d resourceapi.Device, at *field.Path) field.ErrorList {
		return checkDevice(&d, were[d.Name], ptr.Deref(spec.PerDeviceNodeSelection, false), at)
	}, at.Child("devices"))...)
	return append(faults, elements(spec.SharedCounters, resourceapi.ResourceSliceMaxCounterSets, func(c resourceapi.CounterSet) string { return c.Name }, func(c resourceapi.CounterSet, at *field.Path) field.ErrorList {
		return checkCounters(c.Name, at.Child("name"), c.Counters, at.Child("counters"))
	}, at.Child("sharedCounters"))...)
}

// flag is a field that is true or missing.
type flag struct {
	name  string
	value *bool
}

// checkPlace checks that one of the fields says on which nodes devices are.
func checkPlace(node *string, selector *v1.NodeSelector, at *field.Path, flags ...flag) (faults field.ErrorList) {
	places := 0
	switch {
	case node == nil:
	case *node == "":
		faults = append(faults, field.Invalid(at.Child("nodeName"), "", "must be either unset or set to a non-empty string"))
	default:
		places++
		faults = append(faults, valid(*node, at.Child("nodeName"), nameOfObject(*node))...)
	}
	if selector != nil {
		places++
		faults = append(faults, admission.CheckNodeSelector(selector, at.Child("nodeSelector"))...)
	}
	for _, f := range flags {
		switch {
		case f.value == nil:
		case *f.value:
			places++
		default:
			faults = append(faults, field.Invalid(at.Child(f.name), false, "must be either unset or set to true"))
		}
	}
	const why = "exactly one of the fields that select nodes is required"
	switch places {
	case 0:
		faults = append(faults, field.Required(at, why))
	case 1:
	default:
		faults = append(faults, field.Invalid(at, places, why))
	}
	return faults
}

// elements checks a list of at most so many elements, no two of which have the same key. A nil key is that of any.
func elements[T any](list []T, most int, key func(T) string, check func(T, *field.Path) field.ErrorList, at *field.Path) (faults field.ErrorList) {
	if len(list) > most {
		return field.ErrorList{field.TooMany(at, len(list), most)}
	}
	seen := map[string]bool{}
	for i, element := range list {
		faults = append(faults, check(element, at.Index(i))...)
		if key != nil {
			faults = append(faults, once(seen, key(element), at.Index(i))...)
		}
	}
	return faults
}

// checkDevice checks a device. What has not changed since before, which is nil for a new device, is not checked again.
func checkDevice(d, before *resourceapi.Device, placed bool, at *field.Path) field.ErrorList {
	faults := label(d.Name, at.Child("name"))
	if n := len(d.Attributes) + len(d.Capacity); n > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		faults = append(faults, field.Invalid(at, n, "has too many attributes and capacities"))
	}
	for name, attribute := range admission.InOrder(d.Attributes) {
		of := at.Child("attributes")
		faults = slices.Concat(faults, qualifiedName(string(name), of), checkAttributeValue(&attribute, of.Key(string(name))))
	}
	for name, capacity := range admission.InOrder(d.Capacity) {
		if before != nil && apiequality.Semantic.DeepEqual(before.Capacity, d.Capacity) {
			break
		}
		of := at.Child("capacity")
		faults = append(faults, qualifiedName(string(name), of)...)
		switch of := of.Key(string(name)).Child("requestPolicy"); {
		case capacity.RequestPolicy == nil:
		case !ptr.Deref(d.AllowMultipleAllocations, false):
			faults = append(faults, field.Forbidden(of, "allowMultipleAllocations must be true"))
		default:
			faults = append(faults, checkRequestPolicy(capacity.Value, capacity.RequestPolicy, of)...)
		}
	}
	if before == nil || !apiequality.Semantic.DeepEqual(before.Taints, d.Taints) {
		faults = append(faults, elements(d.Taints, resourceapi.DeviceTaintsMaxLength, nil, func(t resourceapi.DeviceTaint, at *field.Path) field.ErrorList {
			return checkDeviceTaint(&t, false, at)
		}, at.Child("taints"))...)
	}
	faults = append(faults, elements(d.ConsumesCounters, resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, func(c resourceapi.DeviceCounterConsumption) string { return c.CounterSet },
		func(c resourceapi.DeviceCounterConsumption, at *field.Path) field.ErrorList {
			return checkCounters(c.CounterSet, at.Child("counterSet"), c.Counters, at.Child("counters"))
		}, at.Child("consumesCounters"))...)
	switch {
	case placed:
		faults = append(faults, checkPlace(d.NodeName, d.NodeSelector, at, flag{"allNodes", d.AllNodes})...)
	case d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil:
		faults = append(faults, field.Invalid(at, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is true"))
	}
	return append(faults, checkBinding(d.BindingConditions, d.BindingFailureConditions, at)...)
}

// qualifiedName refuses what is no name of an attribute, with or without a domain.
func qualifiedName(name string, at *field.Path) (faults field.ErrorList) {
	id := func(id string) field.ErrorList {
		faults := valid(id, at, validation.IsCIdentifier(id))
		if len(id) > resourceapi.DeviceMaxIDLength {
			faults = append(faults, field.TooLong(at, "", resourceapi.DeviceMaxIDLength))
		}
		return faults
	}
	parts := strings.Split(name, "/")
	if len(parts) == 1 {
		return id(name)
	}
	if len(parts) > 2 {
		return nil // as in Kubernetes
	}
	if parts[0] == "" {
		faults = append(faults, field.Invalid(at, "", "the domain must not be empty"))
	} else {
		faults = append(faults, driverName(parts[0], at)...)
	}
	if parts[1] == "" {
		return append(faults, field.Invalid(at, "", "the name must not be empty"))
	}
	return append(faults, id(parts[1])...)
}

// semanticVersion is a version of semver.org 2.0.0.
var semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

func checkAttributeValue(a *resourceapi.DeviceAttribute, at *field.Path) (faults field.ErrorList) {
	texts := map[string]*string{"string": a.StringValue, "version": a.VersionValue}
	values := 0
	for name, text := range admission.InOrder(texts) {
		if text == nil {
			continue
		}
		values++
		if name == "version" && !semanticVersion.MatchString(*text) {
			faults = append(faults, field.Invalid(at.Child(name), *text, "must be a version of semver.org 2.0.0"))
		}
		if len(*text) > resourceapi.DeviceAttributeMaxValueLength {
			faults = append(faults, field.TooLong(at.Child(name), "", resourceapi.DeviceAttributeMaxValueLength))
		}
	}
	for _, set := range []bool{a.BoolValue != nil, a.IntValue != nil} {
		if set {
			values++
		}
	}
	if values != 1 {
		faults = append(faults, field.Invalid(at, values, "exactly one value must be specified"))
	}
	return faults
}

// checkCounters checks a set of counters, which has a name.
func checkCounters(set string, of *field.Path, counters map[string]resourceapi.Counter, at *field.Path) field.ErrorList {
	faults := named(set, of, validation.IsDNS1123Label)
	switch most := resourceapi.ResourceSliceMaxCountersPerCounterSet; {
	case len(counters) == 0:
		return append(faults, field.Required(at, ""))
	case len(counters) > most:
		return append(faults, field.TooMany(at, len(counters), most))
	}
	for name := range admission.InOrder(counters) {
		faults = append(faults, label(name, at)...)
	}
	return faults
}

// checkBinding checks the conditions that a claim waits for, and those that it fails by.
func checkBinding(ready, failed []string, at *field.Path) field.ErrorList {
	waits, fails := at.Child("bindingConditions"), at.Child("bindingFailureConditions")
	itself := func(condition string) string { return condition }
	faults := append(elements(ready, resourceapi.BindingConditionsMaxSize, itself, metav1validation.ValidateLabelName, waits),
		elements(failed, resourceapi.BindingFailureConditionsMaxSize, itself, metav1validation.ValidateLabelName, fails)...)
	for i, condition := range failed {
		if slices.Contains(ready, condition) {
			faults = append(faults, field.Invalid(fails.Index(i), condition, "must not overlap with bindingConditions"))
		}
	}
	switch {
	case len(ready) == 0 && len(failed) > 0:
		faults = append(faults, field.Invalid(waits, ready, "are required to use bindingFailureConditions"))
	case len(failed) == 0 && len(ready) > 0:
		faults = append(faults, field.Invalid(fails, failed, "are required to use bindingConditions"))
	}
	return faults
}

// checkRequestPolicy checks which amounts of a capacity may be requested.
func checkRequestPolicy(capacity resource.Quantity, p *resourceapi.CapacityRequestPolicy, at *field.Path) (faults field.ErrorList) {
	switch list := at.Child("validValues"); {
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, "cannot specify `validValues` and `validRange` at the same time")}
	case p.Default == nil && (len(p.ValidValues) > 0 || p.ValidRange != nil):
		return field.ErrorList{field.Required(at.Child("default"), "")}
	case p.ValidRange != nil:
		return checkRange(capacity, *p.Default, p.ValidRange, at.Child("validRange"))
	case len(p.ValidValues) > 0:
		found := false
		for i, value := range p.ValidValues {
			found = found || value.Cmp(*p.Default) == 0
			if i > 0 && p.ValidValues[i-1].Cmp(value) > 0 {
				faults = append(faults, field.Invalid(list.Index(i), value.String(), "values must be sorted in ascending order"))
			}
		}
		const most = 10 // as in Kubernetes
		faults = append(faults, elements(p.ValidValues, most, func(q resource.Quantity) string { return strconv.FormatInt(q.Value(), 10) }, func(q resource.Quantity, at *field.Path) field.ErrorList {
			if q.Cmp(capacity) > 0 {
				return field.ErrorList{field.Invalid(at, q.String(), "option is larger than the capacity")}
			}
			return nil
		}, list)...)
		if !found || len(p.ValidValues) > most {
			faults = append(faults, field.Invalid(list, p.Default.String(), "default value is not valid according to the requestPolicy"))
		}
	}
	return faults
}

// checkRange checks that the amounts of a range, from its minimum by its step, are within the capacity.
func checkRange(capacity, preset resource.Quantity, r *resourceapi.CapacityRequestPolicyRange, at *field.Path) (faults field.ErrorList) {
	if r.Min == nil {
		return field.ErrorList{field.Required(at.Child("min"), "")}
	}
	most := ptr.Deref(r.Max, capacity)
	for _, rule := range []struct {
		broken bool
		field  string
		why    string
	}{
		{r.Min.Cmp(capacity) > 0, "min", "min is larger than the capacity"}, {preset.Cmp(*r.Min) < 0, "default", "default is less than min"},
		{r.Max != nil && r.Min.Cmp(most) > 0, "max", "min is larger than max"}, {r.Max != nil && most.Cmp(capacity) > 0, "max", "max is larger than the capacity"},
		{r.Max != nil && preset.Cmp(most) > 0, "default", "default is more than max"},
	} {
		if rule.broken {
			faults = append(faults, field.Invalid(at.Child(rule.field), "", rule.why))
		}
	}
	switch {
	case r.Step == nil:
		return faults
	case r.Step.Sign() <= 0:
		return append(faults, field.Invalid(at.Child("step"), r.Step.String(), "must be greater than zero"))
	}
	next := r.Min.DeepCopy()
	if next.Add(*r.Step); next.Cmp(capacity) > 0 {
		faults = append(faults, field.Invalid(at.Child("step"), r.Step.String(), "one step is larger than the capacity"))
	}
	unsafe := false
	for name, q := range admission.InOrder(map[string]*resource.Quantity{"default": &preset, "min": r.Min, "max": r.Max, "step": r.Step}) {
		if q != nil && (q.Sign() < 0 || q.CmpInt64(math.MaxInt64) > 0) {
			faults, unsafe = append(faults, field.Invalid(at.Child(name), q.String(), "must be between 0 and 9223372036854775807")), true
		}
	}
	for _, q := range []*resource.Quantity{&preset, r.Max} {
		if !unsafe && q != nil && (q.Value()-r.Min.Value())%r.Step.Value() != 0 {
			faults = append(faults, field.Invalid(at.Child("step"), q.String(), "value is not a multiple of a step from min"))
		}
	}
	return faults
}
