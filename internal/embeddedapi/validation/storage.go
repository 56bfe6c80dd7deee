package validation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// same refuses a change.
func same(now, before any, at *field.Path) field.ErrorList {
	return apivalidation.ValidateImmutableField(now, before, at)
}

// StorageClass checks a class, and its change where before is not nil.
func StorageClass(c, before *storagev1.StorageClass) field.ErrorList {
	faults := append(checkProvisioner(c.Provisioner, field.NewPath("provisioner")), checkParameters(c.Parameters)...)
	faults = append(faults, optional(c.ReclaimPolicy, field.NewPath("reclaimPolicy"), v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRetain)...)
	faults = append(faults, optional(c.VolumeBindingMode, field.NewPath("volumeBindingMode"), storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	for i, term := range c.AllowedTopologies {
		for j, required := range term.MatchLabelExpressions {
			at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j)
			faults = append(faults, valid(required.Key, at.Child("key"), validation.IsQualifiedName(required.Key))...)
			if len(required.Values) == 0 {
				faults = append(faults, field.Required(at.Child("values"), ""))
			}
		}
	}
	if before == nil {
		return faults
	}
	return slices.Concat(faults, same(c.Provisioner, before.Provisioner, field.NewPath("provisioner")), same(c.Parameters, before.Parameters, field.NewPath("parameters")),
		same(c.ReclaimPolicy, before.ReclaimPolicy, field.NewPath("reclaimPolicy")), same(c.VolumeBindingMode, before.VolumeBindingMode, field.NewPath("volumeBindingMode")))
}

func checkProvisioner(name string, at *field.Path) field.ErrorList {
	return named(name, at, func(name string) []string { return validation.IsQualifiedName(strings.ToLower(name)) })
}

// checkParameters checks those of a driver, which have at most 256 KiB.
func checkParameters(parameters map[string]string) (faults field.ErrorList) {
	at, size := field.NewPath("parameters"), 0
	for name, value := range admission.InOrder(parameters) {
		if name == "" {
			faults = append(faults, field.Invalid(at, name, "field can not be empty."))
		}
		size += len(name) + len(value)
	}
	if size > 256<<10 || len(parameters) > 512 {
		faults = append(faults, field.TooLong(at, "", 256<<10))
	}
	return faults
}

// VolumeAttributesClass checks a class, and its change where before is not nil.
func VolumeAttributesClass(c, before *storagev1.VolumeAttributesClass) field.ErrorList {
	faults := append(checkProvisioner(c.DriverName, field.NewPath("driverName")), checkParameters(c.Parameters)...)
	if len(c.Parameters) == 0 {
		faults = append(faults, field.Required(field.NewPath("parameters"), "must contain at least one key/value pair"))
	}
	if before != nil && c.DriverName != before.DriverName {
		faults = append(faults, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if before != nil && !apiequality.Semantic.DeepEqual(c.Parameters, before.Parameters) {
		faults = append(faults, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return faults
}

// CSIDriver checks a driver, and its change where before is not nil.
func CSIDriver(d, before *storagev1.CSIDriver) (faults field.ErrorList) {
	spec, at := &d.Spec, field.NewPath("spec")
	faults = append(faults, optional(spec.FSGroupPolicy, at.Child("fsGroupPolicy"), storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy)...)
	audiences := map[string]bool{}
	for i, request := range spec.TokenRequests {
		at := at.Child("tokenRequests").Index(i)
		if audiences[request.Audience] {
			faults = append(faults, field.Duplicate(at.Child("audience"), request.Audience))
			continue
		}
		audiences[request.Audience] = true
		faults = append(faults, between(request.ExpirationSeconds, 600, 1<<32, at.Child("expirationSeconds"))...)
	}
	for _, mode := range spec.VolumeLifecycleModes {
		faults = append(faults, known(mode, at.Child("volumeLifecycleModes"), storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	if period := spec.NodeAllocatableUpdatePeriodSeconds; period != nil && *period < 10 {
		faults = append(faults, field.Invalid(at.Child("nodeAllocatableUpdatePeriodSeconds"), *period, "must be greater than or equal to 10 seconds"))
	}
	if before == nil {
		return faults
	}
	return slices.Concat(faults, same(spec.AttachRequired, before.Spec.AttachRequired, at.Child("attachedRequired")), same(spec.VolumeLifecycleModes, before.Spec.VolumeLifecycleModes, at.Child("volumeLifecycleModes")))
}

// CSINode checks the drivers of a node, and their change where before is not nil.
func CSINode(n, before *storagev1.CSINode) (faults field.ErrorList) {
	list, seen := field.NewPath("spec", "drivers"), map[string]bool{}
	for i, driver := range n.Spec.Drivers {
		at := list.Index(i)
		faults = append(faults, driverName(driver.Name, at.Child("name"))...)
		faults = append(faults, given(driver.NodeID, at.Child("nodeID"))...)
		if driver.Allocatable != nil {
			faults = append(faults, counts(at.Child("allocatable"), count{"count", driver.Allocatable.Count})...)
		}
		if seen[driver.Name] {
			faults = append(faults, field.Duplicate(at.Child("name"), driver.Name))
		}
		seen[driver.Name] = true
		for j, key := range driver.TopologyKeys {
			faults = append(faults, valid(key, at, validation.IsQualifiedName(key))...)
			if slices.Contains(driver.TopologyKeys[:j], key) {
				faults = append(faults, field.Duplicate(at, key))
			}
		}
	}
	if before == nil {
		return faults
	}
	for _, was := range before.Spec.Drivers {
		for _, is := range n.Spec.Drivers {
			if was.Allocatable, is.Allocatable = nil, nil; is.Name == was.Name {
				faults = append(faults, same(is, was, list)...)
			}
		}
	}
	return faults
}

// driverName checks the name of a driver, in any case.
func driverName(name string, at *field.Path) field.ErrorList {
	return named(name, at, func(name string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(name)) })
}

// CSIStorageCapacity checks a capacity, and its change where before is not nil.
func CSIStorageCapacity(c, before *storagev1.CSIStorageCapacity) field.ErrorList {
	topology, class := field.NewPath("nodeTopology"), field.NewPath("storageClassName")
	faults := metav1validation.ValidateLabelSelector(c.NodeTopology, metav1validation.LabelSelectorValidationOptions{}, topology)
	faults = append(faults, valid(c.StorageClassName, class, nameOfObject(c.StorageClassName))...)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		faults = append(faults, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), "must be greater than or equal to 0"))
	}
	if before == nil {
		return faults
	}
	return slices.Concat(faults, same(c.NodeTopology, before.NodeTopology, topology), same(c.StorageClassName, before.StorageClassName, class))
}

// VolumeAttachment checks an attachment, and its change where before is not nil.
func VolumeAttachment(a, before *storagev1.VolumeAttachment) field.ErrorList {
	at := field.NewPath("spec")
	source, volume := at.Child("source"), a.Spec.Source.PersistentVolumeName
	faults := append(driverName(a.Spec.Attacher, at.Child("attacher")), valid(a.Spec.NodeName, at.Child("nodeName"), nameOfObject(a.Spec.NodeName))...)
	switch inline := a.Spec.Source.InlineVolumeSpec; {
	case volume == nil && inline == nil:
		faults = append(faults, field.Required(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case volume != nil && inline != nil:
		faults = append(faults, field.Forbidden(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case volume != nil:
		faults = append(faults, named(*volume, source.Child("persistentVolumeName"), nameOfObject)...)
	}
	if before != nil {
		faults = append(faults, same(a.Spec, before.Spec, at)...)
	}
	return faults
}

// accessModes are those of volumes.
var accessModes = []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOnce, v1.ReadWriteOncePod}

func checkAccess(modes []v1.PersistentVolumeAccessMode, at *field.Path) (faults field.ErrorList) {
	if len(modes) == 0 {
		faults = append(faults, field.Required(at, "at least 1 access mode is required"))
	}
	other := false
	for _, mode := range modes {
		faults = append(faults, known(mode, at, accessModes...)...)
		other = other || mode != v1.ReadWriteOncePod && slices.Contains(accessModes, mode)
	}
	if other && slices.Contains(modes, v1.ReadWriteOncePod) {
		faults = append(faults, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return faults
}

func optionalName(name *string, at *field.Path) field.ErrorList {
	if ptr.Deref(name, "") == "" {
		return nil
	}
	return valid(*name, at, nameOfObject(*name))
}

// Claim checks the spec of a claim of storage.
func Claim(spec *v1.PersistentVolumeClaimSpec) field.ErrorList {
	at := field.NewPath("spec")
	faults := append(checkAccess(spec.AccessModes, at.Child("accessModes")), metav1validation.ValidateLabelSelector(spec.Selector, metav1validation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	amount, requested := spec.Resources.Requests[v1.ResourceStorage]
	switch at := at.Child("resources").Key(string(v1.ResourceStorage)); {
	case !requested:
		faults = append(faults, field.Required(at, ""))
	case amount.Sign() <= 0:
		faults = append(faults, field.Invalid(at, amount.String(), "must be greater than zero"))
	}
	faults = append(faults, optional(spec.VolumeMode, at.Child("volumeMode"), v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)...)
	return slices.Concat(faults, optionalName(spec.StorageClassName, at.Child("storageClassName")), optionalName(spec.VolumeAttributesClassName, at.Child("volumeAttributesClassName")))
}
