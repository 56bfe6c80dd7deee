package embeddedapi

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/strategy"
)

// allocateService completes the addresses of a service and their families. The embedded API allocates no addresses and no
// ports of nodes, which a proxy on every node would have to serve: a service without clusterIP keeps none.
func allocateService(_ *API, object, old store.Object) (utilvalidation.ErrorList, error) {
	service, was := object.(*v1.Service), &v1.ServiceSpec{Type: v1.ServiceTypeExternalName}
	before, changed := old.(*v1.Service)
	if changed {
		was = &before.Spec
	}
	spec := &service.Spec
	completeServiceChange(spec, was)
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if spec.Type == v1.ServiceTypeExternalName || prefersSame(spec, was) {
		return nil, nil
	}
	return setFamilies(service, before, was)
}

// prefersSame says that a service is PreferDualStack, and that an update leaves its type, addresses and families as they were.
func prefersSame(spec, before *v1.ServiceSpec) bool {
	policy := v1.IPFamilyPolicyPreferDualStack
	return spec.Type == before.Type && ptr.Deref(spec.IPFamilyPolicy, "") == policy && ptr.Deref(before.IPFamilyPolicy, policy) == policy &&
		slices.Equal(spec.ClusterIPs, before.ClusterIPs) && slices.Equal(spec.IPFamilies, before.IPFamilies)
}

// completeServiceChange keeps what an update leaves out. The strategy removes what another type of service does not have.
func completeServiceChange(spec, before *v1.ServiceSpec) {
	if before.Type == v1.ServiceTypeExternalName {
		return
	}
	external := spec.Type == v1.ServiceTypeExternalName
	switch {
	case !external && spec.ClusterIP == "":
		spec.ClusterIP = before.ClusterIP
	case spec.ClusterIP != before.ClusterIP && slices.Equal(spec.ClusterIPs, before.ClusterIPs):
		spec.ClusterIPs = nil
	}
	if external {
		if ptr.Equal(spec.InternalTrafficPolicy, before.InternalTrafficPolicy) {
			spec.InternalTrafficPolicy = nil // kube-apiserver leaves it out where it reads the service
		}
		return
	}
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP == before.ClusterIP {
		spec.ClusterIPs = before.ClusterIPs
	}
	keep(&spec.IPFamilyPolicy, before.IPFamilyPolicy)
}

// setFamilies sets the families of addresses as kube-apiserver does in a cluster with IPv4 only.
func setFamilies(service, old *v1.Service, before *v1.ServiceSpec) (utilvalidation.ErrorList, error) {
	spec, path := &service.Spec, utilvalidation.NewPath("spec")
	free := spec.ClusterIP == v1.ClusterIPNone && len(spec.Selector) == 0 // its addresses come from its owner
	policy := v1.IPFamilyPolicySingleStack
	if free {
		policy = v1.IPFamilyPolicyRequireDualStack
	}
	keep(&spec.IPFamilyPolicy, &policy)
	policy = *spec.IPFamilyPolicy
	faults, err := strategy.CheckAddresses(service, old)
	if err != nil || len(faults) > 0 {
		return faults, err
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
	return faults, nil
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
