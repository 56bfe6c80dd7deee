// Package devices is the plugin DynamicResources: it allocates devices to the
// resource claims of pods.
//
// The plugins of all profiles share a Store, which has the claims, device classes
// and resource slices of the cluster. Informers update it.
package devices

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// features of the allocator: those that are on by default in Kubernetes 1.37.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
}

// compiledSelectors bounds the cache of compiled CEL expressions.
const compiledSelectors = 256

// Store has the objects of resource.k8s.io of a cluster, with the allocations that
// informers have not reported. The goroutine that owns the table owns it.
type Store struct {
	table *nodetable.Table
	api   API
	// served: the API server serves resource.k8s.io/v1.
	served bool

	claims map[nodetable.Symbol]*claim // by namespace/name
	// generated are the claims for extended resources, by the uid of the pod.
	generated map[types.UID]*claim
	classes   map[string]*resourceapi.DeviceClass
	// resources are the device classes of extended resources.
	resources map[nodetable.Symbol]*resourceapi.DeviceClass
	rules     map[string]*resourceapi.DeviceTaintRule
	inventory inventory
	allocated structured.AllocatedState
	memos     memos
	selectors *cel.Cache
	ctx       context.Context // of the allocator; it logs nothing

	mu      sync.Mutex
	pending map[types.UID]*pending // by uid of the claim
}

// claim is a claim as informers reported it last.
type claim struct {
	*resourceapi.ResourceClaim
	shape string // see shapeOf; empty: not computed
}

// pending is an allocation from Reserve until an informer reports it.
type pending struct {
	claim *resourceapi.ResourceClaim // with the allocation
	// stored is the version that PreBind wrote; nil: not written. Store.mu guards it.
	stored *resourceapi.ResourceClaim
}

// NewStore makes an empty Store over the scheduler's table. PreBind and the removal
// of allocations use the API.
func NewStore(table *nodetable.Table, api API) *Store {
	return &Store{
		table: table, api: api,
		claims: map[nodetable.Symbol]*claim{}, generated: map[types.UID]*claim{}, classes: map[string]*resourceapi.DeviceClass{},
		resources: map[nodetable.Symbol]*resourceapi.DeviceClass{}, rules: map[string]*resourceapi.DeviceTaintRule{},
		inventory: newInventory(), allocated: newAllocatedState(), pending: map[types.UID]*pending{},
		selectors: cel.NewCache(compiledSelectors, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity}),
		ctx:       logr.NewContext(context.Background(), logr.Discard()),
	}
}

// SetServed records that the API server serves resource.k8s.io/v1. Until then pods
// with claims are refused.
func (s *Store) SetServed() { s.served = true }

// SetClaim adds or updates a claim.
func (s *Store) SetClaim(object *resourceapi.ResourceClaim) {
	key := nodetable.ClaimKey(object.Namespace, object.Name)
	is := &claim{ResourceClaim: object}
	if was := s.claims[key]; was != nil {
		if was.UID != object.UID {
			s.RemoveClaim(was.ResourceClaim)
		} else {
			is.shape = was.shape // the spec is immutable
			s.removeAllocation(was.ResourceClaim)
		}
	}
	s.claims[key] = is
	if pod := podOf(object); pod != "" {
		s.generated[pod] = is
	}
	s.settle(object)
	s.addAllocation(object)
}

// RemoveClaim removes a claim with its last known state.
func (s *Store) RemoveClaim(object *resourceapi.ResourceClaim) {
	key := nodetable.ClaimKey(object.Namespace, object.Name)
	was := s.claims[key]
	if was == nil || was.UID != object.UID {
		return
	}
	delete(s.claims, key)
	if pod := podOf(was.ResourceClaim); pod != "" {
		delete(s.generated, pod)
		s.release(generatedUID(pod))
	}
	s.removeAllocation(was.ResourceClaim)
	s.release(was.UID)
}

// podOf is the uid of the pod for whose extended resources the scheduler made a
// claim; empty: the claim is another one.
func podOf(object *resourceapi.ResourceClaim) types.UID {
	if object.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" {
		return ""
	}
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return owner.UID
	}
	return ""
}

// settle ends a pending allocation that an informer reports, or that another client
// has removed again.
func (s *Store) settle(object *resourceapi.ResourceClaim) {
	uid := object.UID
	if pod := podOf(object); pod != "" {
		uid = generatedUID(pod)
	}
	p := s.pending[uid]
	if p == nil {
		return
	}
	s.mu.Lock()
	stored := p.stored
	s.mu.Unlock()
	if object.Status.Allocation != nil || stored != nil && stored.UID == object.UID && !older(object, stored) {
		s.release(uid)
	}
}

// hold adds a pending allocation.
func (s *Store) hold(uid types.UID, allocated *resourceapi.ResourceClaim) {
	s.release(uid)
	s.addAllocation(allocated)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[uid] = &pending{claim: allocated}
}

// release removes a pending allocation, if there is one.
func (s *Store) release(uid types.UID) {
	s.mu.Lock()
	p := s.pending[uid]
	delete(s.pending, uid)
	s.mu.Unlock()
	if p != nil {
		s.removeAllocation(p.claim)
	}
}

// wrote records the version of a claim that PreBind wrote. Any goroutine may call
// it.
func (s *Store) wrote(uid types.UID, stored *resourceapi.ResourceClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pending[uid]; p != nil {
		p.stored = stored
	}
}

// claimsOf are the claims of a pod in the order of its spec; an error: why the pod
// has to wait. A claim that the pod does not need is left out.
func (s *Store) claimsOf(pod *v1.Pod, into []*claim) ([]*claim, error) {
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue
		}
		found := s.claims[nodetable.ClaimKey(pod.Namespace, *name)]
		switch {
		case found == nil:
			return nil, fmt.Errorf("could not find ResourceClaim %q", pod.Namespace+"/"+*name)
		case found.DeletionTimestamp != nil:
			return nil, fmt.Errorf("resourceclaim %q is being deleted", *name)
		}
		if owned {
			if err := resourceclaim.IsForPod(pod, found.ResourceClaim, false); err != nil {
				return nil, err
			}
		}
		into = append(into, found)
	}
	return into, nil
}

// SetClass adds or updates a device class.
func (s *Store) SetClass(object *resourceapi.DeviceClass) {
	s.classes[object.Name] = object
	s.classesChanged()
}

func (s *Store) RemoveClass(name string) {
	delete(s.classes, name)
	s.classesChanged()
}

// classesChanged maps extended resources to classes: of classes with the same
// extendedResourceName the newest wins, then the first by name.
func (s *Store) classesChanged() {
	s.inventory.changed()
	clear(s.resources)
	newest := slices.SortedFunc(maps.Values(s.classes), func(a, b *resourceapi.DeviceClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, class := range newest {
		s.resources[nodetable.Intern(resourceapi.ResourceDeviceClassPrefix+class.Name)] = class
		if name := class.Spec.ExtendedResourceName; name != nil && s.resources[nodetable.Intern(*name)] == nil {
			s.resources[nodetable.Intern(*name)] = class
		}
	}
}

// HasClass reports whether an extended resource has a device class.
func (s *Store) HasClass(resource nodetable.Symbol) bool { return s.resources[resource] != nil }

// lister implements structured.DeviceClassLister.
type lister struct{ *Store }

func (l lister) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := l.classes[name]; class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclass"), name)
}

func (l lister) List() ([]*resourceapi.DeviceClass, error) {
	return slices.Collect(maps.Values(l.classes)), nil
}
