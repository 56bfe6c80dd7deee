package embeddedapi

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/validation"
)

// admitService admits a service. The embedded API allocates no addresses and no ports of nodes, which a proxy on
// every node would have to serve: a service without clusterIP keeps none.
func admitService(_ *API, object, old store.Object) utilvalidation.ErrorList {
	service := object.(*v1.Service)
	before, changed := old.(*v1.Service)
	if !changed {
		service.Status = v1.ServiceStatus{}
	}
	spec := &service.Spec
	if changed {
		completeServiceChange(spec, &before.Spec)
	}
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if spec.Type != v1.ServiceTypeExternalName {
		faults := validation.Addresses(spec)
		if len(faults) == 0 {
			faults = setFamilies(spec, changed)
		}
		if len(faults) > 0 {
			return faults // alone: kube-apiserver allocates before it validates
		}
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
	if ptr.Equal(spec.IPFamilyPolicy, before.IPFamilyPolicy) {
		spec.IPFamilyPolicy = nil
	}
	if ptr.Equal(spec.InternalTrafficPolicy, before.InternalTrafficPolicy) {
		spec.InternalTrafficPolicy = nil
	}
}

// setFamilies sets the families of addresses as kube-apiserver does in a cluster with IPv4 only.
func setFamilies(spec *v1.ServiceSpec, changed bool) (faults utilvalidation.ErrorList) {
	path := utilvalidation.NewPath("spec")
	free := spec.ClusterIP == v1.ClusterIPNone && len(spec.Selector) == 0 // its addresses come from its owner
	policy := v1.IPFamilyPolicySingleStack
	if free || len(spec.IPFamilies) == 2 {
		policy = v1.IPFamilyPolicyRequireDualStack
	}
	keep(&spec.IPFamilyPolicy, &policy)
	policy = ptr.Deref(spec.IPFamilyPolicy, policy)
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol}
	}
	switch {
	case free && policy != v1.IPFamilyPolicySingleStack && len(spec.IPFamilies) == 1 && !changed:
		other := v1.IPv6Protocol
		if spec.IPFamilies[0] == other {
			other = v1.IPv4Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, other)
	case free:
	default:
		if policy == v1.IPFamilyPolicyRequireDualStack {
			faults = append(faults, utilvalidation.Invalid(path.Child("ipFamilyPolicy"), policy, "this cluster is not configured for dual-stack services"))
		}
		if i := slices.Index(spec.IPFamilies, v1.IPv6Protocol); i >= 0 {
			faults = append(faults, utilvalidation.Invalid(path.Child("ipFamilies").Index(i), v1.IPv6Protocol, "not configured on this cluster"))
		}
	}
	return faults
}
