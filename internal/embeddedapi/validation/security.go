package validation

import (
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func checkPodSecurity(spec *v1.PodSpec, at *field.Path) (faults field.ErrorList) {
	c := spec.SecurityContext
	if c == nil {
		return nil
	}
	faults = append(faults, id(c.FSGroup, at.Child("fsGroup"))...)
	faults = append(faults, id(c.RunAsUser, at.Child("runAsUser"))...)
	faults = append(faults, id(c.RunAsGroup, at.Child("runAsGroup"))...)
	for i := range c.SupplementalGroups {
		faults = append(faults, id(&c.SupplementalGroups[i], at.Child("supplementalGroups").Index(i))...)
	}
	faults = append(faults, checkSysctls(spec, at.Child("sysctls"))...)
	faults = append(faults, optional(c.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"), v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)...)
	faults = append(faults, checkProfiles(c.SeccompProfile, c.AppArmorProfile, at)...)
	faults = append(faults, optional(c.SupplementalGroupsPolicy, at.Child("supplementalGroupsPolicy"), v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)...)
	return append(faults, optional(c.SELinuxChangePolicy, at.Child("seLinuxChangePolicy"), v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption)...)
}

// checkSecurity checks the context of a container.
func checkSecurity(c *v1.SecurityContext, hostUsers bool, at *field.Path) (faults field.ErrorList) {
	if c == nil {
		return nil
	}
	faults = append(faults, id(c.RunAsUser, at.Child("runAsUser"))...)
	faults = append(faults, id(c.RunAsGroup, at.Child("runAsGroup"))...)
	faults = append(faults, optional(c.ProcMount, at.Child("procMount"), v1.DefaultProcMount, v1.UnmaskedProcMount)...)
	if hostUsers && ptr.Deref(c.ProcMount, "") == v1.UnmaskedProcMount {
		faults = append(faults, field.Invalid(at.Child("procMount"), *c.ProcMount, "`hostUsers` must be false to use `Unmasked`"))
	}
	if !ptr.Deref(c.AllowPrivilegeEscalation, true) && ptr.Deref(c.Privileged, false) {
		faults = append(faults, field.Invalid(at, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
	return append(faults, checkProfiles(c.SeccompProfile, c.AppArmorProfile, at)...)
}

func checkProfiles(seccomp *v1.SeccompProfile, appArmor *v1.AppArmorProfile, at *field.Path) (faults field.ErrorList) {
	if seccomp != nil {
		at := at.Child("seccompProfile")
		faults = append(faults, supported(seccomp.Type, at.Child("type"), v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined)...)
		switch file := seccomp.LocalhostProfile; {
		case seccomp.Type != v1.SeccompProfileTypeLocalhost && file != nil:
			faults = append(faults, field.Invalid(at.Child("localhostProfile"), *file, "can only be set when seccomp type is Localhost"))
		case seccomp.Type == v1.SeccompProfileTypeLocalhost && file == nil:
			faults = append(faults, field.Required(at.Child("localhostProfile"), "must be set when seccomp type is Localhost"))
		case file != nil:
			faults = append(faults, below(*file, at.Child("localhostProfile"))...)
		}
	}
	if appArmor == nil {
		return faults
	}
	at = at.Child("appArmorProfile")
	faults = append(faults, supported(appArmor.Type, at.Child("type"), v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined)...)
	switch name := appArmor.LocalhostProfile; {
	case appArmor.Type == v1.AppArmorProfileTypeLocalhost && (name == nil || *name == ""):
		faults = append(faults, field.Required(at.Child("localhostProfile"), "must be set when AppArmor type is Localhost"))
	case appArmor.Type == v1.AppArmorProfileTypeLocalhost && strings.TrimSpace(*name) != *name:
		faults = append(faults, field.Invalid(at.Child("localhostProfile"), *name, "must not be padded with whitespace"))
	case (appArmor.Type == v1.AppArmorProfileTypeRuntimeDefault || appArmor.Type == v1.AppArmorProfileTypeUnconfined) && name != nil:
		faults = append(faults, field.Invalid(at.Child("localhostProfile"), *name, "can only be set when AppArmor type is Localhost"))
	}
	return faults
}

// sysctlName is the name of a kernel parameter, with dots or slashes.
var sysctlName = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)

func checkSysctls(spec *v1.PodSpec, at *field.Path) (faults field.ErrorList) {
	seen := map[string]bool{}
	for i, s := range spec.SecurityContext.Sysctls {
		at := at.Index(i).Child("name")
		switch {
		case s.Name == "":
			faults = append(faults, field.Required(at, ""))
		case len(s.Name) > 253 || !sysctlName.MatchString(s.Name):
			faults = append(faults, field.Invalid(at, s.Name, "is no name of a kernel parameter"))
		case seen[s.Name]:
			faults = append(faults, field.Duplicate(at, s.Name))
		}
		switch dotted := strings.ReplaceAll(s.Name, "/", "."); {
		case spec.HostNetwork && strings.HasPrefix(dotted, "net."):
			faults = append(faults, field.Invalid(at, s.Name, "may not be specified when 'hostNetwork' is true"))
		case spec.HostIPC && (strings.HasPrefix(dotted, "kernel.shm") || strings.HasPrefix(dotted, "kernel.msg") || dotted == "kernel.sem" || strings.HasPrefix(dotted, "fs.mqueue.")):
			faults = append(faults, field.Invalid(at, s.Name, "may not be specified when 'hostIPC' is true"))
		}
		seen[s.Name] = true
	}
	return faults
}

// checkHostUsers refuses other namespaces of the host for a pod with users of its own.
func checkHostUsers(spec *v1.PodSpec, at *field.Path) (faults field.ErrorList) {
	if ptr.Deref(spec.HostUsers, true) {
		return nil
	}
	for _, each := range []struct {
		name string
		set  bool
	}{{"hostNetwork", spec.HostNetwork}, {"HostPID", spec.HostPID}, {"HostIPC", spec.HostIPC}} {
		if each.set {
			faults = append(faults, field.Forbidden(at.Child(each.name), "when `hostUsers` is false"))
		}
	}
	return faults
}
