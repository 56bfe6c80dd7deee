package devices

import (
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// ErrFailed is wrapped by the error for a device that cannot become ready.
var ErrFailed = errors.New("device binding failed")

// hasConditions reports whether a device of a claim has to become ready before the
// pod is bound.
func hasConditions(allocation *resourceapi.AllocationResult) bool {
	return allocation != nil && slices.ContainsFunc(allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return len(r.BindingConditions) > 0
	})
}

// isReady reports whether the binding conditions of all devices are true. An error:
// a failure condition is true.
func isReady(claim *resourceapi.ResourceClaim) (bool, error) {
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if len(r.BindingConditions) == 0 {
			continue
		}
		status := statusOf(claim, r)
		if status == nil {
			return false, nil
		}
		for _, name := range r.BindingFailureConditions {
			if failed := meta.FindStatusCondition(status.Conditions, name); failed != nil && meta.IsStatusConditionTrue(status.Conditions, name) {
				return false, fmt.Errorf("%w: claim=%s, reason=%s, message=%q", ErrFailed, claim.Name, failed.Reason, failed.Message)
			}
		}
		for _, name := range r.BindingConditions {
			if !meta.IsStatusConditionTrue(status.Conditions, name) {
				return false, nil
			}
		}
	}
	return true, nil
}

// statusOf is what the driver reports of an allocated device; nil: nothing.
func statusOf(claim *resourceapi.ResourceClaim, r *resourceapi.DeviceRequestAllocationResult) *resourceapi.AllocatedDeviceStatus {
	for i := range claim.Status.Devices {
		if d := &claim.Status.Devices[i]; d.Device == r.Device && d.Driver == r.Driver && d.Pool == r.Pool {
			return d
		}
	}
	return nil
}

// isLate reports whether the devices of a claim have not become ready in time.
func isLate(claim *resourceapi.ResourceClaim, now time.Time, timeout time.Duration) bool {
	at := claim.Status.Allocation.AllocationTimestamp
	return hasConditions(claim.Status.Allocation) && at != nil && at.Add(timeout).Before(now)
}

// isLost reports whether an allocated claim has failed or is late.
func isLost(claim *resourceapi.ResourceClaim, now time.Time, timeout time.Duration) bool {
	ready, err := isReady(claim)
	return err != nil || !ready && isLate(claim, now, timeout)
}

// areReady reports whether the devices of all claims are ready.
func areReady(claims []*resourceapi.ResourceClaim, now time.Time, timeout time.Duration) (bool, error) {
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			return false, nil // the informer's view is older than the allocation
		}
		ready, err := isReady(claim)
		switch {
		case err != nil:
			return false, err
		case !ready && isLate(claim, now, timeout):
			return false, fmt.Errorf("%w: claim=%s", ErrTimeout, claim.Name)
		case !ready:
			return false, nil
		}
	}
	return true, nil
}
