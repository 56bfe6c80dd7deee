package validation

import (
	"net"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NetworkPolicy checks which pods a policy is for, and its rules.
func NetworkPolicy(p, _ *networkingv1.NetworkPolicy) field.ErrorList {
	at := field.NewPath("spec")
	faults := checkSelector(&p.Spec.PodSelector, at.Child("podSelector"))
	rule := func(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, at, to *field.Path) {
		for i, port := range ports {
			faults = append(faults, checkPolicyPort(&port, at.Child("ports").Index(i))...)
		}
		for i, peer := range peers {
			faults = append(faults, checkPeer(&peer, to.Index(i))...)
		}
	}
	for i, r := range p.Spec.Ingress {
		at := at.Child("ingress").Index(i)
		rule(r.Ports, r.From, at, at.Child("from"))
	}
	for i, r := range p.Spec.Egress {
		at := at.Child("egress").Index(i)
		rule(r.Ports, r.To, at, at.Child("to"))
	}
	at = at.Child("policyTypes")
	if len(p.Spec.PolicyTypes) > 2 {
		return append(faults, field.Invalid(at, p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, of := range p.Spec.PolicyTypes {
		faults = append(faults, known(of, at.Index(i), networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return faults
}

func checkSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

func checkPolicyPort(p *networkingv1.NetworkPolicyPort, at *field.Path) field.ErrorList {
	faults, end := optional(p.Protocol, at.Child("protocol"), v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP), at.Child("endPort")
	numeric := p.Port != nil && p.Port.Type == intstr.Int
	switch {
	case numeric:
		faults = append(faults, valid(p.Port.IntVal, at.Child("port"), validation.IsValidPortNum(int(p.Port.IntVal)))...)
	case p.Port != nil:
		faults = append(faults, valid(p.Port.StrVal, at.Child("port"), validation.IsValidPortName(p.Port.StrVal))...)
	}
	switch {
	case p.EndPort == nil:
	case !numeric:
		faults = append(faults, field.Invalid(end, *p.EndPort, "may not be specified without a number as `port`"))
	default:
		if *p.EndPort < p.Port.IntVal {
			faults = append(faults, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
		}
		faults = append(faults, valid(*p.EndPort, end, validation.IsValidPortNum(int(*p.EndPort)))...)
	}
	return faults
}

func checkPeer(p *networkingv1.NetworkPolicyPeer, at *field.Path) (faults field.ErrorList) {
	if p.PodSelector != nil {
		faults = append(faults, checkSelector(p.PodSelector, at.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		faults = append(faults, checkSelector(p.NamespaceSelector, at.Child("namespaceSelector"))...)
	}
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case p.IPBlock == nil && !selects:
		return append(faults, field.Required(at, "must specify a peer"))
	case p.IPBlock == nil:
		return faults
	case selects:
		faults = append(faults, field.Forbidden(at, "may not specify both ipBlock and another peer"))
	}
	at = at.Child("ipBlock")
	if p.IPBlock.CIDR == "" {
		return append(faults, given("", at.Child("cidr"))...)
	}
	faults = append(faults, checkCIDR(p.IPBlock.CIDR, at.Child("cidr"))...)
	_, all, err := net.ParseCIDR(p.IPBlock.CIDR)
	for i, except := range p.IPBlock.Except {
		if err != nil {
			break
		}
		at := at.Child("except").Index(i)
		faults = append(faults, checkCIDR(except, at)...)
		if _, less, err := net.ParseCIDR(except); err == nil && (!all.Contains(less.IP) || bits(all) >= bits(less)) {
			faults = append(faults, field.Invalid(at, except, "must be a strict subset of `cidr`"))
		}
	}
	return faults
}

// bits is the length of the prefix of a network.
func bits(n *net.IPNet) int {
	ones, _ := n.Mask.Size()
	return ones
}
