package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// NewSimulatedStore makes a store without an API server: writes apply immediately.
func NewSimulatedStore(table *nodetable.Table) *Store {
	s := NewStore(table, nil)
	s.api = &Controller{Store: s}
	s.SetServed()
	return s
}

// Reported are the claims as informers reported them last, in no order.
func (s *Store) Reported() (claims []*resourceapi.ResourceClaim) {
	for _, c := range s.claims {
		claims = append(claims, c.ResourceClaim)
	}
	return claims
}

// Controller acts as the API server and as the controllers of claims.
type Controller struct {
	*Store
	// Changed receives each change of a claim after it is applied; was is nil for a new
	// claim, is for a deleted one. nil: not called.
	Changed func(was, is *resourceapi.ResourceClaim)
}

// Controller is that of a simulated store.
func (s *Store) Controller() *Controller { return s.api.(*Controller) }

func (c *Controller) set(was, is *resourceapi.ResourceClaim) {
	if is == nil {
		c.RemoveClaim(was)
	} else {
		c.SetClaim(is)
	}
	if c.Changed != nil {
		c.Changed(was, is)
	}
}

// WithTimeout sets no timeout, so that a simulation does not depend on the clock.
func (*Controller) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// Create names a claim after its generateName.
func (c *Controller) Create(_ context.Context, claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	created := claim.DeepCopy()
	created.Name = strings.TrimSuffix(created.GenerateName, "-")
	created.UID = types.UID(created.Namespace + "/" + created.Name)
	c.set(nil, created)
	return created, nil
}

func (c *Controller) Reserve(_ context.Context, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult, pod *v1.Pod) (*resourceapi.ResourceClaim, error) {
	was := c.claims[nodetable.ClaimKey(claim.Namespace, claim.Name)]
	if was == nil || was.UID != claim.UID {
		return nil, fmt.Errorf("could not find ResourceClaim %q", claim.Namespace+"/"+claim.Name)
	}
	is := was.DeepCopy()
	if allocation != nil {
		is.Status.Allocation = allocation.DeepCopy()
		is.Finalizers = append(is.Finalizers, resourceapi.Finalizer)
	}
	is.Status.ReservedFor = append(is.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	c.set(was.ResourceClaim, is)
	return is, nil
}

// SetExtended does nothing: no plugin reads the status.
func (*Controller) SetExtended(context.Context, *v1.Pod, *v1.PodExtendedResourceClaimStatus) error {
	return nil
}

// Await returns at once: simulated drivers make devices ready.
func (*Controller) Await(context.Context, *v1.Pod, string, time.Duration, []types.NamespacedName, func(time.Time, []*resourceapi.ResourceClaim) (bool, error)) error {
	return nil
}

func (c *Controller) Deallocate(claim *resourceapi.ResourceClaim, _ *v1.Pod) {
	is := claim.DeepCopy()
	is.Status = resourceapi.ResourceClaimStatus{}
	c.set(claim, is)
}

func (c *Controller) Release(claim *resourceapi.ResourceClaim, pod *v1.Pod) {
	is := claim.DeepCopy()
	is.Status.ReservedFor = slices.DeleteFunc(is.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
	c.set(claim, is)
}

func (c *Controller) Delete(claim *resourceapi.ResourceClaim, _ *v1.Pod) { c.set(claim, nil) }

// PodEnded releases the claims of a pod that no longer runs: a claim that the pod
// owns is deleted, another one that no pod uses is deallocated.
func (c *Controller) PodEnded(pod *v1.Pod) {
	for _, key := range slices.SortedFunc(maps.Keys(c.claims), func(a, b nodetable.Symbol) int { return strings.Compare(a.Value(), b.Value()) }) {
		claim := c.claims[key].ResourceClaim
		at := slices.IndexFunc(claim.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
		switch {
		case metav1.IsControlledBy(claim, pod):
			c.set(claim, nil)
		case at >= 0 && len(claim.Status.ReservedFor) == 1:
			c.Deallocate(claim, pod)
		case at >= 0:
			c.Release(claim, pod)
		}
	}
}
