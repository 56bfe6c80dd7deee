package validation

import (
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// Status checks a change of the status of an object that is no pod and no node.
func Status(object, before any) (faults field.ErrorList) {
	at := field.NewPath("status")
	numbers := func(free ...string) field.ErrorList {
		of := func(o any) any { return reflect.ValueOf(o).Elem().FieldByName("Status").Addr().Interface() }
		return statusNumbers(of(object), of(before), free...)
	}
	switch o := object.(type) {
	case *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *appsv1.DaemonSet, *v1.ReplicationController:
		return numbers()
	case *batchv1.Job:
		return append(numbers(), jobStatus(o, before.(*batchv1.Job))...)
	case *policyv1.PodDisruptionBudget:
		return numbers("observedGeneration")
	case *autoscalingv2.HorizontalPodAutoscaler:
		faults = numbers("observedGeneration")
		for i, c := range o.Status.Conditions {
			faults = append(faults, notNegative(ptr.Deref(c.ObservedGeneration, 0), at.Child("conditions").Index(i).Child("observedGeneration"))...)
		}
	case *v1.Namespace:
		if wanted := map[bool]v1.NamespacePhase{false: v1.NamespaceActive, true: v1.NamespaceTerminating}[o.DeletionTimestamp != nil]; o.Status.Phase != wanted {
			faults = append(faults, field.Invalid(at.Child("Phase"), o.Status.Phase, "may only be "+string(wanted)))
		}
	case *v1.ResourceQuota:
		faults = append(checkQuotaAmounts(o.Status.Hard, at.Child("hard")), checkQuotaAmounts(o.Status.Used, at.Child("used"))...)
	case *v1.Service:
		return checkBalancer(&o.Status.LoadBalancer, o.Spec.Type == v1.ServiceTypeLoadBalancer, at.Child("loadBalancer", "ingress"))
	case *v1.PersistentVolumeClaim:
		return claimStatus(&o.Status, at)
	case *resourceapi.DeviceTaintRule:
		return metav1validation.ValidateConditions(o.Status.Conditions, at.Child("conditions"))
	}
	return faults
}

func checkBalancer(s *v1.LoadBalancerStatus, balanced bool, at *field.Path) (faults field.ErrorList) {
	if !balanced && len(s.Ingress) > 0 {
		return field.ErrorList{field.Forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	for i, ingress := range s.Ingress {
		at, mode := at.Index(i), at.Index(i).Child("ipMode")
		if ingress.IP != "" {
			faults = append(faults, checkIP(ingress.IP, at.Child("ip"))...)
		}
		switch {
		case ingress.IPMode == nil && ingress.IP != "":
			faults = append(faults, field.Required(mode, "must be specified when `ip` is set"))
		case ingress.IPMode != nil && ingress.IP == "":
			faults = append(faults, field.Forbidden(mode, "may not be specified when `ip` is not set"))
		default:
			faults = append(faults, optional(ingress.IPMode, mode, v1.LoadBalancerIPModeVIP, v1.LoadBalancerIPModeProxy)...)
		}
		if name, at := ingress.Hostname, at.Child("hostname"); name != "" {
			faults = append(faults, valid(name, at, validation.IsDNS1123Subdomain(name))...)
			if checkIP(name, at) == nil {
				faults = append(faults, field.Invalid(at, name, "must be a DNS name, not an IP address"))
			}
		}
	}
	return faults
}

// claimStatus checks the amounts of a claim of a volume.
func claimStatus(s *v1.PersistentVolumeClaimStatus, at *field.Path) (faults field.ErrorList) {
	key := func(name v1.ResourceName, at *field.Path) field.ErrorList {
		faults := valid(name, at, validation.IsQualifiedName(string(name)))
		if faults == nil && isNative(name) {
			faults = known(name, at, v1.ResourceStorage)
		}
		return faults
	}
	for name, amount := range admission.InOrder(s.Capacity) {
		if amount.Sign() < 0 {
			faults = append(faults, field.Invalid(at.Child("capacity").Key(string(name)), amount.Value(), "must be a valid resource quantity"))
		}
	}
	for name, status := range admission.InOrder(s.AllocatedResourceStatuses) {
		at := at.Child("allocatedResourceStatuses")
		faults = append(faults, key(name, at)...)
		faults = append(faults, known(status, at, v1.PersistentVolumeClaimControllerResizeInProgress, v1.PersistentVolumeClaimControllerResizeInfeasible,
			v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress, v1.PersistentVolumeClaimNodeResizeInfeasible)...)
	}
	for name, amount := range admission.InOrder(s.AllocatedResources) {
		at := at.Child("allocatedResources")
		faults = append(faults, key(name, at)...)
		if amount.Sign() < 0 {
			faults = append(faults, field.Invalid(at.Key(string(name)), amount.Value(), "must be a valid resource quantity"))
		}
	}
	return faults
}

// ordered are numbers of a status of which the first is at most the second, where a kind has both.
var ordered = [][2]string{{"fullyLabeledReplicas", "replicas"}, {"readyReplicas", "replicas"}, {"currentReplicas", "replicas"}, {"updatedReplicas", "replicas"},
	{"availableReplicas", "replicas"}, {"availableReplicas", "readyReplicas"}}

// statusNumbers checks the numbers of a status, given by a pointer: none but the free ones is negative, and the count of
// collisions does not decrease.
func statusNumbers(now, before any, free ...string) (faults field.ErrorList) {
	at, numbers := field.NewPath("status"), numbersOf(now)
	for name, n := range admission.InOrder(numbers) {
		if !slices.Contains(free, name) {
			faults = append(faults, notNegative(n, at.Child(name))...)
		}
	}
	for _, pair := range ordered {
		less, has := numbers[pair[0]]
		if more, also := numbers[pair[1]]; has && also && less > more {
			faults = append(faults, field.Invalid(at.Child(pair[0]), less, "cannot be greater than "+pair[1]))
		}
	}
	const collisions = "collisionCount"
	if n := numbers[collisions]; n < numbersOf(before)[collisions] {
		faults = append(faults, field.Invalid(at.Child(collisions), n, "cannot be decremented"))
	}
	return faults
}

// numbersOf are the numbers of a struct that are set, by their names in JSON.
func numbersOf(status any) map[string]int64 {
	numbers, fields := map[string]int64{}, reflect.ValueOf(status).Elem()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
		value := fields.Field(i)
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		if value.IsValid() && value.CanInt() {
			numbers[name] = value.Int()
		}
	}
	return numbers
}
