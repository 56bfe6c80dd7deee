package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/evictd/evictd/internal/admission"
)

// checkRequests refuses the amounts of resources that ValidateContainerResourceRequirements and
// validatePodResources of Kubernetes' core validation refuse.
func checkRequests(spec *v1.PodSpec, path *field.Path) (faults field.ErrorList) {
	for _, list := range []struct {
		name       string
		containers []v1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i := range list.containers {
			faults = append(faults, checkResources(&list.containers[i].Resources, checkContainerResource, path.Child(list.name).Index(i).Child("resources"))...)
		}
	}
	for i := range spec.EphemeralContainers { // which may have none: another fault
		faults = append(faults, checkResources(&spec.EphemeralContainers[i].Resources, checkContainerResource, path.Child("ephemeralContainers").Index(i).Child("resources"))...)
	}
	faults = append(faults, checkResources(&v1.ResourceRequirements{Limits: spec.Overhead}, checkContainerResource, path.Child("overhead"))...)
	if spec.Resources == nil {
		return faults
	}
	path = path.Child("resources")
	faults = append(faults, checkResources(spec.Resources, checkPodResource, path)...)
	sum := resourcehelper.AggregateContainerRequests(&v1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if own, given := spec.Resources.Requests[name]; given && own.Cmp(sum[name]) < 0 {
			faults = append(faults, field.Invalid(path.Child("requests").Key(string(name)), own.String(), "must be at least what the containers request"))
		}
	}
	for i := range spec.Containers {
		for name, limit := range admission.InOrder(spec.Containers[i].Resources.Limits) {
			if own, given := spec.Resources.Limits[name]; given && limit.Cmp(own) > 0 {
				faults = append(faults, field.Invalid(path.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(), "must be at most the limit of the pod"))
			}
		}
	}
	return faults
}

func checkResources(r *v1.ResourceRequirements, checkName func(v1.ResourceName, *field.Path) field.ErrorList, path *field.Path) (faults field.ErrorList) {
	huge, compute := false, false
	for _, list := range []struct {
		name    string
		amounts v1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.amounts)) {
			at := path.Child(list.name).Key(string(name))
			faults = append(faults, checkName(name, at)...)
			faults = append(faults, checkAmount(name, list.amounts[name], at)...)
			huge = huge || isHugePage(name)
			compute = compute || name == v1.ResourceCPU || name == v1.ResourceMemory
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		switch overcommits := isNative(name) && !isHugePage(name); {
		case !limited && !overcommits:
			faults = append(faults, field.Required(path.Child("limits"), fmt.Sprintf("%s needs a limit", name)))
		case limited && !overcommits && request.Cmp(limit) != 0:
			faults = append(faults, field.Invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			faults = append(faults, field.Invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	if huge && !compute {
		faults = append(faults, field.Forbidden(path, "huge pages need cpu or memory"))
	}
	return faults
}

// checkAmount refuses a negative amount, and a fraction of what is counted.
func checkAmount(name v1.ResourceName, q resource.Quantity, at *field.Path) (faults field.ErrorList) {
	if q.Sign() < 0 {
		faults = append(faults, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
	}
	if (slices.Contains(counted, name) || isExtended(name)) && q.MilliValue()%1000 != 0 {
		faults = append(faults, field.Invalid(at, q.String(), "must be an integer"))
	}
	return faults
}

// counted are Kubernetes' own resources that have no fractions.
var counted = []v1.ResourceName{v1.ResourcePods, v1.ResourceQuotas, v1.ResourceServices, v1.ResourceReplicationControllers, v1.ResourceSecrets, v1.ResourceConfigMaps,
	v1.ResourcePersistentVolumeClaims, v1.ResourceServicesNodePorts, v1.ResourceServicesLoadBalancers}

func checkContainerResource(name v1.ResourceName, at *field.Path) field.ErrorList {
	faults := checkResourceName(name, at)
	standard := isHugePage(name) || slices.Contains([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}, name)
	switch qualified := strings.Contains(string(name), "/"); {
	case !qualified && !standard:
		faults = append(faults, field.Invalid(at, name, "must be a standard resource for containers"))
	case qualified && !isNative(name) && !isExtended(name):
		faults = append(faults, field.Invalid(at, name, "is no name of an extended resource"))
	}
	return faults
}

func checkPodResource(name v1.ResourceName, at *field.Path) field.ErrorList {
	faults := checkResourceName(name, at)
	if faults == nil && !resourcehelper.IsSupportedPodLevelResource(name) {
		faults = field.ErrorList{field.NotSupported(at, name, []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory})}
	}
	return faults
}

// checkResourceName refuses what is no qualified name, and a name without a domain that is not known.
func checkResourceName(name v1.ResourceName, at *field.Path) (faults field.ErrorList) {
	for _, why := range validation.IsQualifiedName(string(name)) {
		faults = append(faults, field.Invalid(at, name, why))
	}
	known := slices.Concat(counted, []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourceRequestsCPU, v1.ResourceRequestsMemory,
		v1.ResourceRequestsEphemeralStorage, v1.ResourceLimitsCPU, v1.ResourceLimitsMemory, v1.ResourceLimitsEphemeralStorage, v1.ResourceStorage, v1.ResourceRequestsStorage})
	if faults == nil && !strings.Contains(string(name), "/") && !isHugePage(name) && !slices.Contains(known, name) {
		faults = append(faults, field.Invalid(at, name, "must be a standard resource type or fully qualified"))
	}
	return faults
}

func isHugePage(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isNative says that a resource is Kubernetes' own.
func isNative(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

func isExtended(name v1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+string(name))) == 0
}
