package validation

import (
	"net"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

func isHeadless(s *v1.ServiceSpec) bool {
	return len(s.ClusterIPs) == 1 && s.ClusterIPs[0] == v1.ClusterIPNone
}

// Service checks a service, and its change where before is not nil. A service may be without the addresses and the ports
// of nodes that kube-apiserver allocates.
func Service(service, before *v1.Service) (faults field.ErrorList) {
	spec, at := &service.Spec, field.NewPath("spec")
	if before != nil {
		faults = checkAddressesChange(spec, &before.Spec, at)
	}
	faults = append(faults, supported(spec.Type, at.Child("type"), v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort, v1.ServiceTypeLoadBalancer, v1.ServiceTypeExternalName)...)
	if spec.Type == v1.ServiceTypeExternalName {
		faults = append(faults, checkExternalName(spec, at)...)
	}
	if len(spec.Ports) == 0 && !isHeadless(spec) && spec.Type != v1.ServiceTypeExternalName {
		faults = append(faults, field.Required(at.Child("ports"), ""))
	}
	if isHeadless(spec) && (spec.Type == v1.ServiceTypeLoadBalancer || spec.Type == v1.ServiceTypeNodePort) {
		faults = append(faults, field.Invalid(at.Child("clusterIPs").Index(0), v1.ClusterIPNone, "may not be set to 'None' for services of this type"))
	}
	faults = append(faults, checkServicePorts(spec, at.Child("ports"))...)
	faults = append(faults, admission.CheckLabels(spec.Selector, at.Child("selector"))...)
	faults = append(faults, supported(spec.SessionAffinity, at.Child("sessionAffinity"), v1.ServiceAffinityClientIP, v1.ServiceAffinityNone)...)
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		faults = append(faults, between(c.ClientIP.TimeoutSeconds, 1, 86400, at.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"))...)
	}
	for i, ip := range spec.ExternalIPs {
		faults = append(faults, checkEndpointIP(ip, at.Child("externalIPs").Index(i))...)
	}
	return append(faults, checkTraffic(spec, at)...)
}

func checkExternalName(spec *v1.ServiceSpec, at *field.Path) (faults field.ErrorList) {
	for name, set := range admission.InOrder(map[string]bool{"clusterIPs": len(spec.ClusterIPs) > 0, "ipFamilies": len(spec.IPFamilies) > 0, "ipFamilyPolicy": spec.IPFamilyPolicy != nil}) {
		if set {
			faults = append(faults, field.Forbidden(at.Child(name), "may not be set for ExternalName services"))
		}
	}
	return append(faults, named(strings.TrimSuffix(spec.ExternalName, "."), at.Child("externalName"), validation.IsDNS1123Subdomain)...)
}

// Addresses checks the addresses of a service and their families.
func Addresses(spec *v1.ServiceSpec) (faults field.ErrorList) {
	at := field.NewPath("spec")
	ips, families := at.Child("clusterIPs"), at.Child("ipFamilies")
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		faults = append(faults, field.Invalid(ips, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		faults = append(faults, field.Required(ips, ""))
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		faults = append(faults, field.Invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	for i, family := range spec.IPFamilies {
		faults = append(faults, known(family, families.Index(i), v1.IPv4Protocol, v1.IPv6Protocol)...)
		if slices.Contains(spec.IPFamilies[:i], family) {
			faults = append(faults, field.Duplicate(families.Index(i), family))
		}
	}
	faults = append(faults, optional(spec.IPFamilyPolicy, at.Child("ipFamilyPolicy"), v1.IPFamilyPolicySingleStack, v1.IPFamilyPolicyPreferDualStack, v1.IPFamilyPolicyRequireDualStack)...)
	wrong := false
	for i, ip := range spec.ClusterIPs {
		var fault field.ErrorList
		if i > 0 || ip != v1.ClusterIPNone {
			fault = checkIP(ip, ips.Index(i))
		} else if len(spec.ClusterIPs) > 1 {
			fault = field.ErrorList{field.Invalid(ips, spec.ClusterIPs, "'None' must be the first and only value")}
		}
		faults, wrong = append(faults, fault...), wrong || len(fault) > 0
	}
	if wrong || isHeadless(spec) {
		return faults
	}
	if n := len(spec.ClusterIPs); n > 2 || n == 2 && isIPv6(spec.ClusterIPs[0]) == isIPv6(spec.ClusterIPs[1]) {
		faults = append(faults, field.Invalid(ips, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	for i, ip := range spec.ClusterIPs {
		if i < len(spec.IPFamilies) && isIPv6(ip) != (spec.IPFamilies[i] == v1.IPv6Protocol) {
			faults = append(faults, field.Invalid(ips.Index(i), ip, "must be of the family that `ipFamilies` has at this place"))
		}
	}
	return faults
}

// checkAddressesChange keeps the first address and its family.
func checkAddressesChange(spec, before *v1.ServiceSpec, at *field.Path) (faults field.ErrorList) {
	if spec.Type == v1.ServiceTypeExternalName || before.Type == v1.ServiceTypeExternalName {
		return nil
	}
	if bothHeadless := isHeadless(spec) && isHeadless(before); !bothHeadless && len(before.ClusterIPs) > 0 && (len(spec.ClusterIPs) == 0 || spec.ClusterIPs[0] != before.ClusterIPs[0]) {
		faults = append(faults, field.Invalid(at.Child("clusterIPs").Index(0), spec.ClusterIPs, "may not change once set"))
	}
	if len(before.IPFamilies) > 0 && !isSelectorless(spec) && (len(spec.IPFamilies) == 0 || spec.IPFamilies[0] != before.IPFamilies[0]) {
		faults = append(faults, field.Invalid(at.Child("ipFamilies").Index(0), spec.IPFamilies, "may not change once set"))
	}
	if policy := ptr.Deref(spec.IPFamilyPolicy, ""); len(before.IPFamilies) == 2 && len(spec.IPFamilies) == 1 && policy != v1.IPFamilyPolicySingleStack {
		faults = append(faults, field.Invalid(at.Child("ipFamilyPolicy"), policy, "must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return faults
}

// isSelectorless says that a headless service has the addresses that its owner gives it.
func isSelectorless(spec *v1.ServiceSpec) bool { return isHeadless(spec) && len(spec.Selector) == 0 }

func checkServicePorts(spec *v1.ServiceSpec, at *field.Path) (faults field.ErrorList) {
	type use struct {
		protocol v1.Protocol
		number   int32
	}
	names, numbers, nodes := map[string]bool{}, map[use]bool{}, map[use]bool{}
	for i, port := range spec.Ports {
		at := at.Index(i)
		switch {
		case port.Name == "" && len(spec.Ports) > 1:
			faults = append(faults, field.Required(at.Child("name"), ""))
		case port.Name != "":
			faults = append(faults, valid(port.Name, at.Child("name"), validation.IsDNS1123Label(port.Name))...)
			if names[port.Name] {
				faults = append(faults, field.Duplicate(at.Child("name"), port.Name))
			}
			names[port.Name] = true
		}
		faults = append(faults, valid(port.Port, at.Child("port"), validation.IsValidPortNum(int(port.Port)))...)
		faults = append(faults, supported(port.Protocol, at.Child("protocol"), v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
		if target := port.TargetPort; target.Type == intstr.String {
			faults = append(faults, valid(target.StrVal, at.Child("targetPort"), validation.IsValidPortName(target.StrVal))...)
		} else {
			faults = append(faults, valid(target.IntVal, at.Child("targetPort"), validation.IsValidPortNum(int(target.IntVal)))...)
		}
		if port.AppProtocol != nil {
			faults = append(faults, valid(*port.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName(*port.AppProtocol))...)
		}
		if numbers[use{port.Protocol, port.Port}] {
			faults = append(faults, field.Duplicate(at, port.Port))
		}
		numbers[use{port.Protocol, port.Port}] = true
		if port.NodePort == 0 {
			continue
		}
		if spec.Type == v1.ServiceTypeClusterIP {
			faults = append(faults, field.Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
		if nodes[use{port.Protocol, port.NodePort}] {
			faults = append(faults, field.Duplicate(at.Child("nodePort"), port.NodePort))
		}
		nodes[use{port.Protocol, port.NodePort}] = true
	}
	return faults
}

// checkEndpointIP refuses what is no address of another host.
func checkEndpointIP(text string, at *field.Path) field.ErrorList {
	ip := net.ParseIP(text)
	if ip != nil && (ip.IsUnspecified() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast()) {
		return field.ErrorList{field.Invalid(at, text, "may not be unspecified, of the loopback or of a link")}
	}
	return checkIP(text, at)
}

// checkTraffic checks what a load balancer and a proxy read.
func checkTraffic(spec *v1.ServiceSpec, at *field.Path) (faults field.ErrorList) {
	balanced := spec.Type == v1.ServiceTypeLoadBalancer
	external := balanced || spec.Type == v1.ServiceTypeNodePort || spec.Type == v1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
	const sources = "LoadBalancerSourceRanges" // Kubernetes gives these faults this path
	ranges := at.Child(sources)
	for name, set := range admission.InOrder(map[string]bool{sources: len(spec.LoadBalancerSourceRanges) > 0, "allocateLoadBalancerNodePorts": spec.AllocateLoadBalancerNodePorts != nil,
		"loadBalancerClass": spec.LoadBalancerClass != nil}) {
		if set && !balanced {
			faults = append(faults, field.Forbidden(at.Child(name), "may only be used when `type` is 'LoadBalancer'"))
		}
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		faults = append(faults, checkCIDR(strings.TrimSpace(cidr), ranges.Index(i))...)
	}
	if class := ptr.Deref(spec.LoadBalancerClass, ""); balanced && class != "" {
		faults = append(faults, valid(class, at.Child("loadBalancerClass"), validation.IsQualifiedName(class))...)
	}
	switch policy, at := spec.ExternalTrafficPolicy, at.Child("externalTrafficPolicy"); {
	case external:
		faults = append(faults, supported(policy, at, v1.ServiceExternalTrafficPolicyCluster, v1.ServiceExternalTrafficPolicyLocal)...)
	case policy != "":
		faults = append(faults, field.Invalid(at, policy, "may only be set for externally-accessible services"))
	}
	if port, at := spec.HealthCheckNodePort, at.Child("healthCheckNodePort"); port != 0 {
		if !balanced || spec.ExternalTrafficPolicy != v1.ServiceExternalTrafficPolicyLocal {
			faults = append(faults, field.Invalid(at, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		} else {
			faults = append(faults, valid(port, at, validation.IsValidPortNum(int(port)))...)
		}
	}
	faults = append(faults, optional(spec.InternalTrafficPolicy, at.Child("internalTrafficPolicy"), v1.ServiceInternalTrafficPolicyCluster, v1.ServiceInternalTrafficPolicyLocal)...)
	return append(faults, optional(spec.TrafficDistribution, at.Child("trafficDistribution"), v1.ServiceTrafficDistributionPreferClose, v1.ServiceTrafficDistributionPreferSameZone, v1.ServiceTrafficDistributionPreferSameNode)...)
}
