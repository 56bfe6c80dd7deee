package validation

import (
	"fmt"
	"math"
	"net"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// Pod checks what only a pod has, not a template, and its spec. Before is nil for a new pod.
func Pod(pod, before *v1.Pod) field.ErrorList {
	at := field.NewPath("spec")
	faults := Spec(&pod.Spec, pod.Name, at)
	for i, volume := range pod.Spec.Volumes {
		if volume.Projected == nil || pod.Spec.ServiceAccountName != "" {
			continue
		}
		for j, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				faults = append(faults, field.Forbidden(at.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"), "must not be specified when serviceAccountName is not set"))
			}
		}
	}
	faults = append(faults, notNegative(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 0), at.Child("terminationGracePeriodSeconds"))...)
	for name, list := range admission.InOrder(map[string][]v1.Container{"containers": pod.Spec.Containers, "initContainers": pod.Spec.InitContainers}) {
		for i := range list {
			faults = append(faults, trimmed(list[i].Image, at.Child(name).Index(i).Child("image"))...)
		}
	}
	if before == nil && len(pod.Spec.EphemeralContainers) > 0 {
		faults = append(faults, field.Forbidden(at.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if before == nil && pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		faults = append(faults, field.Forbidden(at.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return faults
}

// EphemeralContainers checks a pod whose ephemeral containers an update has changed: it may only add to them.
func EphemeralContainers(pod, before *v1.Pod) field.ErrorList {
	if _, static := before.Annotations[v1.MirrorPodAnnotationKey]; static {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	faults, at := Pod(pod, before), field.NewPath("spec", "ephemeralContainers")
	now := map[string]*v1.EphemeralContainer{}
	for i := range pod.Spec.EphemeralContainers {
		now[pod.Spec.EphemeralContainers[i].Name] = &pod.Spec.EphemeralContainers[i]
	}
	for i := range before.Spec.EphemeralContainers {
		was := &before.Spec.EphemeralContainers[i]
		if is := now[was.Name]; is == nil || !apiequality.Semantic.DeepEqual(is, was) {
			faults = append(faults, field.Forbidden(at, fmt.Sprintf("existing ephemeral container %q may not be changed or removed", was.Name)))
		}
	}
	return faults
}

func trimmed(image string, at *field.Path) field.ErrorList {
	if strings.TrimSpace(image) == image {
		return nil
	}
	return field.ErrorList{field.Invalid(at, image, "must not have leading or trailing whitespace")}
}

// Spec checks the spec of a pod with a name, or of a template, whose name is empty.
func Spec(spec *v1.PodSpec, name string, at *field.Path) (faults field.ErrorList) {
	volumes, faults := checkVolumes(spec.Volumes, name, at.Child("volumes"))
	faults = append(faults, checkContainers(spec, volumes, at)...)
	faults = append(faults, checkRequests(spec, at)...)
	faults = append(faults, admission.CheckSelectors(spec, at)...)
	faults = append(faults, checkNetwork(spec, at)...)
	faults = append(faults, checkNames(spec, at)...)
	faults = append(faults, checkPodSecurity(spec, at.Child("securityContext"))...)
	faults = append(faults, checkHostUsers(spec, at)...)
	faults = append(faults, checkPlacement(spec, at)...)
	faults = append(faults, supported(spec.RestartPolicy, at.Child("restartPolicy"), v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)...)
	faults = append(faults, between(spec.ActiveDeadlineSeconds, 1, math.MaxInt32, at.Child("activeDeadlineSeconds"))...)
	if spec.HostPID && ptr.Deref(spec.ShareProcessNamespace, false) {
		faults = append(faults, field.Invalid(at.Child("shareProcessNamespace"), true, "may not be set together with hostPID"))
	}
	faults = append(faults, optional(spec.PreemptionPolicy, at.Child("preemptionPolicy"), v1.PreemptLowerPriority, v1.PreemptNever)...)
	return faults
}

// checkNames checks the names of other objects, hosts and conditions.
func checkNames(spec *v1.PodSpec, at *field.Path) (faults field.ErrorList) {
	subdomain := validation.IsDNS1123Subdomain
	for _, each := range []struct {
		name, field string
		reasons     func(string) []string
	}{
		{spec.ServiceAccountName, "serviceAccountName", subdomain}, {spec.NodeName, "nodeName", subdomain}, {spec.PriorityClassName, "priorityClassName", subdomain},
		{spec.Hostname, "hostname", validation.IsDNS1123Label}, {spec.Subdomain, "subdomain", validation.IsDNS1123Label},
	} {
		if each.name != "" {
			faults = append(faults, valid(each.name, at.Child(each.field), each.reasons(each.name))...)
		}
	}
	if spec.RuntimeClassName != nil {
		faults = append(faults, valid(*spec.RuntimeClassName, at.Child("runtimeClassName"), apivalidation.NameIsDNSSubdomain(*spec.RuntimeClassName, false))...)
	}
	faults = append(faults, admission.CheckLabels(spec.NodeSelector, at.Child("nodeSelector"))...)
	for i, gate := range spec.ReadinessGates {
		faults = append(faults, valid(gate.ConditionType, at.Child("readinessGates").Index(i).Child("conditionType"), validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	seen := map[string]bool{}
	for i, gate := range spec.SchedulingGates {
		at := at.Child("schedulingGates").Index(i)
		faults = append(faults, valid(gate.Name, at, validation.IsQualifiedName(gate.Name))...)
		if seen[gate.Name] {
			faults = append(faults, field.Duplicate(at, gate.Name))
		}
		seen[gate.Name] = true
	}
	return faults
}

// checkNetwork checks ports of the host's network, the resolver and the names of hosts.
func checkNetwork(spec *v1.PodSpec, at *field.Path) (faults field.ErrorList) {
	for i := range spec.Containers {
		for j, port := range spec.Containers[i].Ports {
			if spec.HostNetwork && port.HostPort != 0 && port.HostPort != port.ContainerPort {
				faults = append(faults, field.Invalid(at.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	for i, alias := range spec.HostAliases {
		at := at.Child("hostAliases").Index(i)
		faults = append(faults, checkIP(alias.IP, at.Child("ip"))...)
		for j, name := range alias.Hostnames {
			faults = append(faults, valid(name, at.Child("hostnames").Index(j), validation.IsDNS1123Subdomain(name))...)
		}
	}
	faults = append(faults, supported(spec.DNSPolicy, at.Child("dnsPolicy"), v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst, v1.DNSDefault, v1.DNSNone)...)
	config, path := spec.DNSConfig, at.Child("dnsConfig")
	switch {
	case spec.DNSPolicy == v1.DNSNone && config == nil:
		return append(faults, field.Required(path, "dnsPolicy is None"))
	case spec.DNSPolicy == v1.DNSNone && len(config.Nameservers) == 0:
		return append(faults, field.Required(path.Child("nameservers"), "dnsPolicy is None"))
	case config == nil:
		return faults
	}
	if len(config.Nameservers) > 3 {
		faults = append(faults, field.Invalid(path.Child("nameservers"), config.Nameservers, "must not have more than 3 nameservers"))
	}
	for i, server := range config.Nameservers {
		faults = append(faults, checkIP(server, path.Child("nameservers").Index(i))...)
	}
	for i, search := range config.Searches {
		if name := strings.TrimSuffix(search, "."); search != "." {
			faults = append(faults, valid(name, path.Child("searches").Index(i), validation.IsDNS1123SubdomainWithUnderscore(name))...)
		}
	}
	for i, option := range config.Options {
		faults = append(faults, given(option.Name, path.Child("options").Index(i))...)
	}
	return faults
}

func checkIP(text string, at *field.Path) field.ErrorList {
	if net.ParseIP(text) == nil {
		return field.ErrorList{field.Invalid(at, text, "must be a valid IP address")}
	}
	return nil
}

func checkCIDR(text string, at *field.Path) field.ErrorList {
	if _, _, err := net.ParseCIDR(text); err != nil {
		return field.ErrorList{field.Invalid(at, text, "must be a valid CIDR value")}
	}
	return nil
}

func isIPv6(text string) bool { return strings.Contains(text, ":") }
