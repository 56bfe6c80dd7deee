package validation

import (
	"path"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkVolumes returns the volumes without faults by name. Pod is the name of the pod, empty for a template.
func checkVolumes(volumes []v1.Volume, pod string, at *field.Path) (whole map[string]v1.VolumeSource, faults field.ErrorList) {
	whole = map[string]v1.VolumeSource{}
	made := map[string]bool{} // claims
	for _, volume := range volumes {
		if volume.Ephemeral != nil && pod != "" {
			made[pod+"-"+volume.Name] = true
		}
	}
	for i, volume := range volumes {
		at := at.Index(i)
		found := checkVolume(&volume, pod, at)
		found = append(found, named(volume.Name, at.Child("name"), validation.IsDNS1123Label)...)
		if _, twice := whole[volume.Name]; twice {
			found = append(found, field.Duplicate(at.Child("name"), volume.Name))
		}
		if len(found) == 0 {
			whole[volume.Name] = volume.VolumeSource
		}
		if claim := volume.PersistentVolumeClaim; claim != nil && made[claim.ClaimName] {
			found = append(found, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), claim.ClaimName, "must not reference a claim that is made for an ephemeral volume"))
		}
		faults = append(faults, found...)
	}
	return whole, faults
}

// checkVolume checks the source of a volume, of which there is one.
func checkVolume(volume *v1.Volume, pod string, at *field.Path) (faults field.ErrorList) {
	source := reflect.ValueOf(volume.VolumeSource)
	seen := false
	for i := range source.NumField() {
		if source.Field(i).IsNil() {
			continue
		}
		name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
		if volume.EmptyDir != nil && name != "emptyDir" || seen {
			faults = append(faults, field.Forbidden(at.Child(pathOf(name)), "may not specify more than 1 volume type"))
			continue
		}
		seen = true
		faults = append(faults, checkSource(&volume.VolumeSource, name, at.Child(name))...)
	}
	if !seen {
		faults = append(faults, field.Required(at, "must specify a volume type"))
	}
	if volume.Ephemeral != nil && pod != "" && volume.Name != "" {
		faults = append(faults, valid(volume.Name, at.Child("name"), apivalidation.NameIsDNSSubdomain(pod+"-"+volume.Name, false))...)
	}
	return faults
}

// pathOf is the name that Kubernetes gives a field in the fault of a second source.
func pathOf(name string) string {
	switch name {
	case "downwardAPI":
		return "downwarAPI"
	case "cephfs":
		return "cephFS"
	}
	return name
}

func checkSource(s *v1.VolumeSource, name string, at *field.Path) (faults field.ErrorList) {
	switch name {
	case "emptyDir":
		if limit := s.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			faults = append(faults, field.Forbidden(at.Child("sizeLimit"), "must not be negative"))
		}
	case "hostPath":
		if s.HostPath.Path == "" {
			return given("", at.Child("path"))
		}
		faults = append(noBacksteps(s.HostPath.Path, at.Child("path")), optional(s.HostPath.Type, at.Child("type"), v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory,
			v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)...)
	case "secret":
		faults = append(given(s.Secret.SecretName, at.Child("secretName")), mode(s.Secret.DefaultMode, at.Child("defaultMode"))...)
		faults = append(faults, checkItems(s.Secret.Items, at)...)
	case "configMap":
		faults = append(given(s.ConfigMap.Name, at.Child("name")), mode(s.ConfigMap.DefaultMode, at.Child("defaultMode"))...)
		faults = append(faults, checkItems(s.ConfigMap.Items, at)...)
	case "nfs":
		faults = append(given(s.NFS.Server, at.Child("server")), given(s.NFS.Path, at.Child("path"))...)
		if !path.IsAbs(s.NFS.Path) {
			faults = append(faults, field.Invalid(at.Child("path"), s.NFS.Path, "must be an absolute path"))
		}
	case "persistentVolumeClaim":
		faults = given(s.PersistentVolumeClaim.ClaimName, at.Child("claimName"))
	case "downwardAPI":
		faults = mode(s.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		for i := range s.DownwardAPI.Items {
			faults = append(faults, checkDownward(&s.DownwardAPI.Items[i], at)...)
		}
	case "csi":
		faults = named(s.CSI.Driver, at.Child("driver"), func(name string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(name)) })
	case "ephemeral":
		if s.Ephemeral.VolumeClaimTemplate == nil {
			faults = append(faults, field.Required(at.Child("volumeClaimTemplate"), ""))
		}
	case "projected":
		faults = append(mode(s.Projected.DefaultMode, at.Child("defaultMode")), checkProjected(s.Projected, at)...)
	}
	return faults
}

func checkItems(items []v1.KeyToPath, at *field.Path) (faults field.ErrorList) {
	for i, item := range items {
		at := at.Child("items").Index(i)
		faults = append(faults, given(item.Key, at.Child("key"))...)
		faults = append(faults, given(item.Path, at.Child("path"))...)
		faults = append(faults, localPath(item.Path, at.Child("path"))...)
		faults = append(faults, mode(item.Mode, at.Child("mode"))...)
	}
	return faults
}

func checkProjected(projected *v1.ProjectedVolumeSource, at *field.Path) (faults field.ErrorList) {
	seen := map[string]bool{}
	take := func(path string) {
		if path != "" && seen[path] {
			faults = append(faults, field.Invalid(at, path, "conflicting duplicate paths"))
		}
		seen[path] = true
	}
	for i, source := range projected.Sources {
		of, sources := at.Child("sources").Index(i), 0
		if s := source.Secret; s != nil {
			sources++
			faults = append(faults, given(s.Name, of.Child("secret", "name"))...)
			faults = append(faults, checkItems(s.Items, of.Child("secret"))...)
			for _, item := range s.Items {
				take(item.Path)
			}
		}
		if s := source.ConfigMap; s != nil {
			sources++
			faults = append(faults, given(s.Name, of.Child("configMap", "name"))...)
			faults = append(faults, checkItems(s.Items, of.Child("configMap"))...)
			for _, item := range s.Items {
				take(item.Path)
			}
		}
		if s := source.DownwardAPI; s != nil {
			sources++
			for i := range s.Items {
				faults = append(faults, checkDownward(&s.Items[i], of.Child("downwardAPI"))...)
				take(s.Items[i].Path)
			}
		}
		if s := source.ServiceAccountToken; s != nil {
			sources++
			faults = append(faults, between(s.ExpirationSeconds, 600, 1<<32, of.Child("serviceAccountToken", "expirationSeconds"))...)
			faults = append(faults, named(s.Path, at.Child("path"), func(string) []string { return nil })...)
			faults = append(faults, localPath(s.Path, at.Child("path"))...)
		}
		if sources > 1 {
			faults = append(faults, field.Forbidden(of, "may not specify more than 1 volume type per source"))
		}
	}
	return faults
}

// checkMounts checks the volumes that a container mounts.
func checkMounts(c *v1.Container, volumes map[string]v1.VolumeSource, at *field.Path) (faults field.ErrorList) {
	taken := map[string]bool{}
	for i, mount := range c.VolumeMounts {
		of := at.Index(i)
		faults = append(faults, given(mount.Name, of.Child("name"))...)
		if _, has := volumes[mount.Name]; !has {
			faults = append(faults, field.NotFound(of.Child("name"), mount.Name))
		}
		faults = append(faults, given(mount.MountPath, of.Child("mountPath"))...)
		if taken[mount.MountPath] {
			faults = append(faults, field.Invalid(of.Child("mountPath"), mount.MountPath, "must be unique"))
		}
		taken[mount.MountPath] = true
		// Kubernetes leaves the number of the mount out of the paths of the next faults.
		faults = append(faults, below(mount.SubPath, at.Child("subPath"))...)
		faults = append(faults, below(mount.SubPathExpr, at.Child("subPathExpr"))...)
		if mount.SubPath != "" && mount.SubPathExpr != "" {
			faults = append(faults, field.Invalid(of.Child("subPathExpr"), mount.SubPathExpr, "may not be set together with subPath"))
		}
		faults = append(faults, checkPropagation(&mount, c.SecurityContext, at)...)
	}
	return faults
}

func checkPropagation(mount *v1.VolumeMount, security *v1.SecurityContext, at *field.Path) field.ErrorList {
	faults := optional(mount.MountPropagation, at.Child("mountPropagation"), v1.MountPropagationBidirectional, v1.MountPropagationHostToContainer, v1.MountPropagationNone)
	privileged := security != nil && security.Privileged != nil && *security.Privileged
	if mount.MountPropagation != nil && *mount.MountPropagation == v1.MountPropagationBidirectional && !privileged {
		faults = append(faults, field.Forbidden(at.Child("mountPropagation"), "Bidirectional is available only to privileged containers"))
	}
	at = at.Child("recursiveReadOnly")
	if mount.RecursiveReadOnly == nil || *mount.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return faults
	}
	if wrong := known(*mount.RecursiveReadOnly, at, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled); wrong != nil {
		return append(faults, wrong...)
	}
	if !mount.ReadOnly {
		faults = append(faults, field.Forbidden(at, "may only be specified when readOnly is true"))
	}
	if mount.MountPropagation != nil && *mount.MountPropagation != v1.MountPropagationNone {
		faults = append(faults, field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
	}
	return faults
}
