package outoftree

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// Errors of what out-of-tree plugins do not have.
var (
	errNoGroups  = errors.New("pod groups are not supported")
	errNoDevices = errors.New("claims and devices are not passed to out-of-tree plugins")
)

// noGroups has no pod groups.
type noGroups struct{}

func (noGroups) PodGroupStates() fwk.PodGroupStateLister { return lister[fwk.PodGroupState]{} }
func (noGroups) PodGroups() fwk.PodGroupLister           { return lister[*schedulingv1beta1.PodGroup]{} }
func (noGroups) CompositePodGroupStates() fwk.CompositePodGroupStateLister {
	return lister[fwk.CompositePodGroupState]{}
}
func (noGroups) CompositePodGroups() fwk.CompositePodGroupLister {
	return lister[*schedulingv1alpha3.CompositePodGroup]{}
}

func (noGroups) BuildHierarchySnapshotFromPod(*v1.Pod) (fwk.PodGroupManager, error) {
	return nil, errNoGroups
}

func (noGroups) GetRootKeyForGroup(fwk.EntityKey) (root fwk.EntityKey, found bool, err error) {
	return root, false, errNoGroups
}

type lister[T any] struct{}

func (lister[T]) Get(_, _ string) (none T, err error) { return none, errNoGroups }

// noDevices is a DRA manager without devices.
type noDevices struct{}

func (noDevices) ResourceClaims() fwk.ResourceClaimTracker     { return noClaims{} }
func (noDevices) ResourceSlices() fwk.ResourceSliceLister      { return noSlices{} }
func (noDevices) DeviceClasses() fwk.DeviceClassLister         { return noClasses{} }
func (noDevices) DeviceClassResolver() fwk.DeviceClassResolver { return noClasses{} }

type noSlices struct{}

func (noSlices) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	return nil, errNoDevices
}

type noClasses struct{}

func (noClasses) List() ([]*resourcev1.DeviceClass, error)               { return nil, errNoDevices }
func (noClasses) Get(string) (*resourcev1.DeviceClass, error)            { return nil, errNoDevices }
func (noClasses) GetDeviceClass(v1.ResourceName) *resourcev1.DeviceClass { return nil }

type noClaims struct{}

func (noClaims) List() ([]*resourcev1.ResourceClaim, error)              { return nil, errNoDevices }
func (noClaims) Get(_, _ string) (*resourcev1.ResourceClaim, error)      { return nil, errNoDevices }
func (noClaims) AssumeClaimAfterAPICall(*resourcev1.ResourceClaim) error { return errNoDevices }

func (noClaims) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	return nil, errNoDevices
}

func (noClaims) GatherAllocatedState() (*structured.AllocatedState, error) {
	return nil, errNoDevices
}

func (noClaims) SignalClaimPendingAllocation(types.UID, *resourcev1.ResourceClaim) error {
	return errNoDevices
}

// No claim is pending or assumed.
func (noClaims) GetPendingAllocation(types.UID) *resourcev1.AllocationResult { return nil }
func (noClaims) MaybeRemoveClaimPendingAllocation(types.UID, bool) bool      { return false }
func (noClaims) AssumedClaimRestore(_, _ string)                             {}
