package validation

import (
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// PersistentVolume checks a volume, whose source does not change.
func PersistentVolume(volume, before *v1.PersistentVolume) field.ErrorList {
	spec, at := &volume.Spec, field.NewPath("spec")
	faults := checkAccess(spec.AccessModes, at.Child("accessModes"))
	if len(spec.Capacity) == 0 {
		faults = append(faults, field.Required(at.Child("capacity"), ""))
	}
	if _, has := spec.Capacity[v1.ResourceStorage]; !has || len(spec.Capacity) > 1 {
		faults = append(faults, field.NotSupported(at.Child("capacity"), spec.Capacity, []v1.ResourceName{v1.ResourceStorage}))
	}
	for name, amount := range admission.InOrder(spec.Capacity) {
		if amount.Sign() <= 0 {
			faults = append(faults, field.Invalid(at.Child("capacity").Key(string(name)), amount.String(), "must be greater than zero"))
		}
	}
	if policy := spec.PersistentVolumeReclaimPolicy; policy != "" {
		faults = append(faults, known(policy, at.Child("persistentVolumeReclaimPolicy"), v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRecycle, v1.PersistentVolumeReclaimRetain)...)
		if policy == v1.PersistentVolumeReclaimRecycle && spec.HostPath != nil && spec.HostPath.Path == "/" {
			faults = append(faults, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
		}
	}
	if a := spec.NodeAffinity; a != nil && a.Required == nil {
		faults = append(faults, field.Required(at.Child("nodeAffinity", "required"), "must specify required node constraints"))
	} else if a != nil {
		faults = append(faults, admission.CheckNodeSelector(a.Required, at.Child("nodeAffinity", "required"))...)
	}
	faults = append(faults, checkVolumeSource(spec, at)...)
	faults = append(faults, optionalName(&spec.StorageClassName, at.Child("storageClassName"))...)
	faults = append(faults, optionalName(spec.VolumeAttributesClassName, at.Child("volumeAttributesClassName"))...)
	faults = append(faults, optional(spec.VolumeMode, at.Child("volumeMode"), v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)...)
	if before == nil {
		return faults
	}
	was := before.Spec.PersistentVolumeSource
	if was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil && spec.CSI != nil {
		was.CSI = new(*was.CSI)
		was.CSI.ControllerExpandSecretRef = spec.CSI.ControllerExpandSecretRef
	}
	if !apiequality.Semantic.DeepEqual(spec.PersistentVolumeSource, was) {
		faults = append(faults, field.Forbidden(at.Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation"))
	}
	return append(faults, same(spec.VolumeMode, before.Spec.VolumeMode, field.NewPath("volumeMode"))...)
}

// checkVolumeSource checks the source of a volume, of which there is one.
func checkVolumeSource(spec *v1.PersistentVolumeSpec, at *field.Path) (faults field.ErrorList) {
	source, seen := reflect.ValueOf(spec.PersistentVolumeSource), ""
	for i := range source.NumField() {
		if source.Field(i).IsNil() {
			continue
		}
		name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
		if seen != "" {
			faults = append(faults, field.Forbidden(at.Child(name), "may not specify more than 1 volume type"))
		}
		seen = name
	}
	switch at := at.Child(seen); {
	case seen == "":
		return field.ErrorList{field.Required(field.NewPath("spec"), "must specify a volume type")}
	case faults != nil:
	case spec.HostPath != nil:
		faults = checkSource(&v1.VolumeSource{HostPath: spec.HostPath}, seen, at)
	case spec.NFS != nil:
		faults = checkSource(&v1.VolumeSource{NFS: spec.NFS}, seen, at)
	case spec.Local != nil:
		faults = append(given(spec.Local.Path, at.Child("path")), noBacksteps(spec.Local.Path, at.Child("path"))...)
		if ptr.Deref(spec.NodeAffinity, v1.VolumeNodeAffinity{}).Required == nil {
			faults = append(faults, field.Required(field.NewPath("spec", "nodeAffinity"), "Local volume requires node affinity"))
		}
	case spec.CSI != nil:
		faults = append(driverName(spec.CSI.Driver, at.Child("driver")), given(spec.CSI.VolumeHandle, at.Child("volumeHandle"))...)
	}
	return faults
}
