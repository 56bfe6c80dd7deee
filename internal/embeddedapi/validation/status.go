package validation

import (
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// PodStatus checks a change of the status of a pod.
func PodStatus(pod, before *v1.Pod) (faults field.ErrorList) {
	now, were, at := &pod.Status, &before.Status, field.NewPath("status")
	for i, c := range now.Conditions {
		at := at.Child("conditions").Index(i)
		faults = append(faults, notNegative(c.ObservedGeneration, at.Child("observedGeneration"))...)
		if !slices.Contains([]v1.PodConditionType{v1.PodScheduled, v1.PodReady, v1.PodInitialized}, c.Type) {
			faults = append(faults, valid(c.Type, at.Child("Type"), validation.IsQualifiedName(string(c.Type)))...)
		}
	}
	if node := now.NominatedNodeName; node != "" && node != were.NominatedNodeName {
		faults = append(faults, valid(node, at.Child("nominatedNodeName"), nameOfObject(node))...)
		if before.Spec.NodeName != "" {
			faults = append(faults, field.Forbidden(at.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node"))
		}
	}
	faults = append(faults, notNegative(now.ObservedGeneration, at.Child("observedGeneration"))...)
	faults = append(faults, apivalidation.ValidateImmutableField(now.QOSClass, were.QOSClass, at.Child("qosClass"))...)
	faults = append(faults, checkTransitions(now.ContainerStatuses, were.ContainerStatuses, &before.Spec, at.Child("containerStatuses"))...)
	ips := func(list []string, name string) {
		for i, ip := range list {
			faults = append(faults, checkIP(ip, at.Child(name).Index(i))...)
		}
		if len(list) > 2 || len(list) == 2 && isIPv6(list[0]) == isIPv6(list[1]) {
			faults = append(faults, field.Invalid(at.Child(name), list, "may specify no more than one IP for each IP family"))
		}
	}
	var pods, hosts []string
	for _, ip := range now.PodIPs {
		pods = append(pods, ip.IP)
	}
	for _, ip := range now.HostIPs {
		hosts = append(hosts, ip.IP)
	}
	ips(pods, "podIPs")
	ips(hosts, "hostIPs")
	if len(hosts) > 0 && hosts[0] != now.HostIP {
		faults = append(faults, field.Invalid(at.Child("hostIPs").Index(0).Child("ip"), hosts[0], "must be equal to `hostIP`"))
	}
	return faults
}

// checkTransitions refuses that a container runs again that has ended and is not restarted.
func checkTransitions(now, were []v1.ContainerStatus, spec *v1.PodSpec, at *field.Path) (faults field.ErrorList) {
	for i, was := range were {
		if was.State.Terminated == nil || mayRestart(spec, was.Name, was.State.Terminated.ExitCode) {
			continue
		}
		if slices.ContainsFunc(now, func(is v1.ContainerStatus) bool { return is.Name == was.Name && is.State.Terminated == nil }) {
			faults = append(faults, field.Forbidden(at.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return faults
}

// mayRestart says whether a container, by its own policy or that of the pod, is started again after an exit code.
func mayRestart(spec *v1.PodSpec, name string, code int32) bool {
	i := slices.IndexFunc(spec.Containers, func(c v1.Container) bool { return c.Name == name })
	if i < 0 {
		return false
	}
	c, policy := &spec.Containers[i], string(spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(ptr.Deref(c.RestartPolicy, ""))
		if len(c.RestartPolicyRules) > 0 {
			return true // a rule may start it
		}
	}
	return policy == string(v1.RestartPolicyAlways) || policy == string(v1.RestartPolicyOnFailure) && code != 0
}

// Node checks a node, and its change where before is not nil.
func Node(node, before *v1.Node) (faults field.ErrorList) {
	faults = append(faults, Taints(node.Spec.Taints, field.NewPath("metadata", "taints"))...)
	status, spec := field.NewPath("status"), field.NewPath("spec")
	for list, amounts := range admission.InOrder(map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable}) {
		for name, q := range admission.InOrder(amounts) {
			faults = append(faults, checkAmount(name, q, status.Child(list, string(name)))...)
		}
	}
	cidrs, at := node.Spec.PodCIDRs, spec.Child("podCIDRs")
	for i, cidr := range cidrs {
		faults = append(faults, checkCIDR(cidr, at.Index(i))...)
	}
	if len(cidrs) > 2 || len(cidrs) == 2 && isIPv6(cidrs[0]) == isIPv6(cidrs[1]) {
		faults = append(faults, field.Invalid(at, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	for i, feature := range node.Status.DeclaredFeatures {
		at := status.Child("declaredFeatures").Index(i)
		if !declaredFeature.MatchString(feature) || len(feature) > validation.DNS1123SubdomainMaxLength {
			faults = append(faults, field.Invalid(at, feature, "must be names in UpperCamelCase, separated by slashes"))
		}
		switch {
		case i == 0 || feature > node.Status.DeclaredFeatures[i-1]:
		case feature == node.Status.DeclaredFeatures[i-1]:
			faults = append(faults, field.Duplicate(at, feature))
		default:
			faults = append(faults, field.Invalid(at, feature, "list must be sorted alphabetically"))
		}
	}
	if before == nil {
		return faults
	}
	seen := map[v1.NodeAddress]bool{}
	for i, address := range node.Status.Addresses {
		if seen[address] {
			faults = append(faults, field.Duplicate(status.Child("addresses").Index(i), address))
		}
		seen[address] = true
	}
	if were := before.Spec.PodCIDRs; len(were) > 0 && !slices.Equal(were, node.Spec.PodCIDRs) {
		faults = append(faults, field.Forbidden(spec.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	if was := before.Spec.ProviderID; was != "" && was != node.Spec.ProviderID {
		faults = append(faults, field.Invalid(spec.Child("providerID"), node.Spec.ProviderID, "field cannot be modified once set"))
	}
	return faults
}

// declaredFeature is the name of a feature that a node declares.
var declaredFeature = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// Budget checks the spec of a budget.
func Budget(spec *policyv1.PodDisruptionBudgetSpec) (faults field.ErrorList) {
	at := field.NewPath("spec")
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		faults = append(faults, field.Invalid(at, "", "minAvailable and maxUnavailable cannot be both set"))
	}
	faults = append(faults, amountOrShare(spec.MinAvailable, true, at.Child("minAvailable"))...)
	faults = append(faults, amountOrShare(spec.MaxUnavailable, true, at.Child("maxUnavailable"))...)
	faults = append(faults, optional(spec.UnhealthyPodEvictionPolicy, at.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	return append(faults, metav1validation.ValidateLabelSelector(spec.Selector, metav1validation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
}
