package embeddedapi

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/validation"
)

// allocateService completes the addresses of a service and their families. The embedded API allocates no addresses and no
// ports of nodes, which a proxy on every node would have to serve: a service without clusterIP keeps none.
func allocateService(_ *API, object, old store.Object) utilvalidation.ErrorList {
	spec, was := &object.(*v1.Service).Spec, &v1.ServiceSpec{Type: v1.ServiceTypeExternalName}
	if before, changed := old.(*v1.Service); changed {
		was = &before.Spec
	}
	completeServiceChange(spec, was)
	forgetTraffic(spec, was)
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if spec.Type == v1.ServiceTypeExternalName || prefersSame(spec, was) {
		return nil
	}
	return setFamilies(spec, was)
}

// prefersSame says that a service is PreferDualStack, and that an update leaves its type, addresses and families as they were.
func prefersSame(spec, before *v1.ServiceSpec) bool {
	policy := v1.IPFamilyPolicyPreferDualStack
	return spec.Type == before.Type && ptr.Deref(spec.IPFamilyPolicy, "") == policy && ptr.Deref(before.IPFamilyPolicy, policy) == policy &&
		slices.Equal(spec.ClusterIPs, before.ClusterIPs) && slices.Equal(spec.IPFamilies, before.IPFamilies)
}

func admitService(_ *API, object, old store.Object) utilvalidation.ErrorList {
	service := object.(*v1.Service)
	before, changed := old.(*v1.Service)
	if !changed {
		service.Status = v1.ServiceStatus{}
	}
	return validation.Service(service, before)
}

// completeServiceChange keeps what an update leaves out, and removes what another type of service does not have.
func completeServiceChange(spec, before *v1.ServiceSpec) {
	external := spec.Type == v1.ServiceTypeExternalName
	same := slices.Equal(spec.ClusterIPs, before.ClusterIPs)
	switch {
	case before.Type == v1.ServiceTypeExternalName:
		return
	case !external && spec.ClusterIP == "":
		spec.ClusterIP = before.ClusterIP
	case spec.ClusterIP != before.ClusterIP && same:
		spec.ClusterIPs = nil
	}
	if !external {
		if len(spec.ClusterIPs) == 0 && spec.ClusterIP == before.ClusterIP {
			spec.ClusterIPs = before.ClusterIPs
		}
		keep(&spec.IPFamilyPolicy, before.IPFamilyPolicy)
		return
	}
	if same {
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	if slices.Equal(spec.IPFamilies, before.IPFamilies) {
		spec.IPFamilies = nil
	}
	forget(&spec.IPFamilyPolicy, before.IPFamilyPolicy)
	forget(&spec.InternalTrafficPolicy, before.InternalTrafficPolicy)
}

// forgetTraffic removes what only the type of service had that an update changes, where the update leaves it as it was.
func forgetTraffic(spec, before *v1.ServiceSpec) {
	if before.Type == v1.ServiceTypeLoadBalancer && spec.Type != before.Type {
		forget(&spec.AllocateLoadBalancerNodePorts, before.AllocateLoadBalancerNodePorts)
		forget(&spec.LoadBalancerClass, before.LoadBalancerClass)
	}
	accessible := func(s *v1.ServiceSpec) bool {
		return s.Type == v1.ServiceTypeLoadBalancer || s.Type == v1.ServiceTypeNodePort || s.Type == v1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0
	}
	if accessible(before) && !accessible(spec) && spec.ExternalTrafficPolicy == before.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
}

func forget[T comparable](field **T, before *T) {
	if ptr.Equal(*field, before) {
		*field = nil
	}
}

// setFamilies sets the families of addresses as kube-apiserver does in a cluster with IPv4 only.
func setFamilies(spec, before *v1.ServiceSpec) utilvalidation.ErrorList {
	path := utilvalidation.NewPath("spec")
	free := spec.ClusterIP == v1.ClusterIPNone && len(spec.Selector) == 0 // its addresses come from its owner
	policy := v1.IPFamilyPolicySingleStack
	if free {
		policy = v1.IPFamilyPolicyRequireDualStack
	}
	keep(&spec.IPFamilyPolicy, &policy)
	faults, policy := validation.Addresses(spec), *spec.IPFamilyPolicy
	if len(faults) > 0 {
		return faults
	}
	refuse := func(at *utilvalidation.Path, value any, why string) {
		faults = append(faults, utilvalidation.Invalid(at, value, why))
	}
	ofPolicy := path.Child("ipFamilyPolicy")
	spec.ClusterIPs = released(spec.ClusterIPs, before.ClusterIPs, policy, func(why string) { refuse(ofPolicy, policy, why+" addresses") })
	spec.IPFamilies = released(spec.IPFamilies, before.IPFamilies, policy, func(why string) { refuse(ofPolicy, policy, why+" families") })
	for i, ip := range spec.ClusterIPs[min(len(spec.IPFamilies), len(spec.ClusterIPs)):] {
		if at := path.Child("clusterIPs").Index(len(spec.IPFamilies) + i); strings.Contains(ip, ":") {
			refuse(at, spec.ClusterIPs, "IPv6 is not configured on this cluster")
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol}
	}
	switch {
	case len(faults) > 0:
	case free && policy != v1.IPFamilyPolicySingleStack && len(spec.IPFamilies) == 1:
		other := v1.IPv6Protocol
		if spec.IPFamilies[0] == other {
			other = v1.IPv4Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, other)
	case free:
	default:
		if policy == v1.IPFamilyPolicyRequireDualStack {
			refuse(ofPolicy, policy, "this cluster is not configured for dual-stack services")
		}
		if i := slices.Index(spec.IPFamilies, v1.IPv6Protocol); i >= 0 {
			refuse(path.Child("ipFamilies").Index(i), v1.IPv6Protocol, "not configured on this cluster")
		}
	}
	return faults
}

// released is a list of addresses or families without the second one, where an update has a policy for one of them.
func released[T comparable](list, before []T, policy v1.IPFamilyPolicy, refuse func(why string)) []T {
	switch single := policy == v1.IPFamilyPolicySingleStack; {
	case single && slices.Equal(list, before):
		return list[:min(1, len(list))]
	case single && len(list) == 2:
		refuse("must be 'RequireDualStack' or 'PreferDualStack' with two")
	case !single && 0 < len(list) && len(list) < len(before):
		refuse("must be 'SingleStack' with less")
	}
	return list
}
