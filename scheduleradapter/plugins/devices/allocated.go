package devices

import (
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

func newAllocatedState() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
}

// addAllocation counts the devices of an allocated claim as allocated.
func (s *Store) addAllocation(object *resourceapi.ResourceClaim) {
	s.count(object, func(id structured.DeviceID, shared *structured.SharedDeviceID, capacity structured.DeviceConsumedCapacity) {
		if shared == nil {
			s.allocated.AllocatedDevices.Insert(id)
			return
		}
		s.allocated.AllocatedSharedDeviceIDs.Insert(*shared)
		s.allocated.AggregatedCapacity.Insert(capacity)
	})
}

// removeAllocation is the reverse of addAllocation.
func (s *Store) removeAllocation(object *resourceapi.ResourceClaim) {
	s.count(object, func(id structured.DeviceID, shared *structured.SharedDeviceID, capacity structured.DeviceConsumedCapacity) {
		if shared == nil {
			s.allocated.AllocatedDevices.Delete(id)
			return
		}
		s.allocated.AllocatedSharedDeviceIDs.Delete(*shared)
		s.allocated.AggregatedCapacity.Remove(capacity)
	})
}

// count calls a function for each allocated device, with the share and its capacity
// if several claims may share the device. Admin access allocates no device.
func (s *Store) count(object *resourceapi.ResourceClaim, device func(structured.DeviceID, *structured.SharedDeviceID, structured.DeviceConsumedCapacity)) {
	if object.Status.Allocation == nil {
		return
	}
	for i := range object.Status.Allocation.Devices.Results {
		r := &object.Status.Allocation.Devices.Results[i]
		if ptr.Deref(r.AdminAccess, false) {
			continue
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			device(id, nil, structured.DeviceConsumedCapacity{})
		} else {
			device(id, new(structured.MakeSharedDeviceID(id, r.ShareID)), structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
		if p := s.inventory.pools[poolID{r.Driver, r.Pool}]; p != nil {
			s.inventory.poolChanged(p)
		}
	}
}

// older reports whether an informer's object is older than a written one.
func older(reported, written metav1.Object) bool {
	r, err := strconv.ParseUint(reported.GetResourceVersion(), 10, 64)
	w, err2 := strconv.ParseUint(written.GetResourceVersion(), 10, 64)
	return err == nil && err2 == nil && r < w
}
