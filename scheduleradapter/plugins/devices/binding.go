package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// API writes the decisions. Any goroutine may call the methods that have a context;
// the others do not block, and the goroutine that owns the Store calls them.
type API interface {
	// WithTimeout bounds the allocation for a node; zero: no bound.
	WithTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc)
	// Create creates a special claim and returns the stored object.
	Create(ctx context.Context, claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error)
	// Reserve adds the pod to status.reservedFor of a claim, with the allocation and
	// the finalizer if there is an allocation; nil: the claim has one. It returns the
	// stored object.
	Reserve(ctx context.Context, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult, pod *v1.Pod) (*resourceapi.ResourceClaim, error)
	// SetExtended sets status.extendedResourceClaimStatus of a pod.
	SetExtended(ctx context.Context, pod *v1.Pod, status *v1.PodExtendedResourceClaimStatus) error
	// Await records an event of the pod and calls done with the time and the
	// informers' view of the claims, again after changes and when the time passes,
	// until it returns true or an error, or the timeout ends with ErrTimeout.
	Await(ctx context.Context, pod *v1.Pod, node string, timeout time.Duration, claims []types.NamespacedName, done func(now time.Time, claims []*resourceapi.ResourceClaim) (bool, error)) error

	// Deallocate removes allocation and reservations of a claim. If that fails, the pod
	// is tried again.
	Deallocate(claim *resourceapi.ResourceClaim, pod *v1.Pod)
	// Release removes the reservation of a pod.
	Release(claim *resourceapi.ResourceClaim, pod *v1.Pod)
	// Delete deletes a special claim. If that fails, the pod is tried again.
	Delete(claim *resourceapi.ResourceClaim, pod *v1.Pod)
}

// ErrTimeout is wrapped by the error of a binding that waits too long for devices.
var ErrTimeout = errors.New("device binding timeout")

// plan is what PreBind writes for a pod. Plugin.mu guards what PreBind changes.
type plan struct {
	parts    []part
	mappings []mapping
}

// part is a claim of the pod.
type part struct {
	claim *resourceapi.ResourceClaim
	// allocation of Reserve; nil: the claim was allocated.
	allocation *resourceapi.AllocationResult
	special    bool
	stored     *resourceapi.ResourceClaim // by PreBind; nil: not written
}

// Reserve holds the devices of the selected node.
func (p *Plugin) Reserve(a framework.Assignment) framework.Status {
	if len(p.podClaims) == 0 && p.special == nil {
		return framework.Status{}
	}
	made := &plan{}
	for _, claim := range p.existing {
		made.parts = append(made.parts, part{claim: claim.ResourceClaim})
	}
	if row := p.table.Row(a.Node.Name); len(p.allocates) > 0 {
		v := p.variants[p.lacking(p.table, row)]
		switch {
		case v == nil, len(v.claims) > 0 && len(v.memo.results[row].allocations) != len(v.claims):
			return framework.AsStatus(errors.New("claim allocation not found for node"))
		case len(v.claims) > 0:
			allocations, err := p.allocationsOn(v, row, a.Node)
			if err != nil {
				return framework.AsStatus(err)
			}
			p.holdAll(made, v, allocations)
		}
	}
	if len(made.parts) == 0 {
		return framework.Status{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plans[a.Pod.UID] = made
	return framework.Status{}
}

// allocationsOn are the allocations on the selected node. Those of claims with
// configurations are made again, because claims with other configurations have the
// same memo.
func (p *Plugin) allocationsOn(v *variant, row nodetable.Row, node *nodetable.Node) ([]resourceapi.AllocationResult, error) {
	known := v.memo.results[row].allocations
	if !slices.ContainsFunc(v.claims, func(claim *resourceapi.ResourceClaim) bool { return len(claim.Spec.Devices.Config) > 0 }) {
		return known, nil
	}
	r, err := p.allocate(v.claims, node)
	if err == nil && len(r.allocations) != len(known) {
		err = errors.New("claim allocation not found for node")
	}
	return r.allocations, err
}

func (p *Plugin) holdAll(made *plan, v *variant, allocations []resourceapi.AllocationResult) {
	made.mappings = v.mappings
	for i, claim := range v.claims {
		held := claim.DeepCopy()
		held.Status.Allocation = &allocations[i]
		p.hold(claim.UID, held)
		made.parts = append(made.parts, part{claim: claim, allocation: &allocations[i], special: claim.Name == notCreated})
	}
}

// Unreserve releases the devices that are not written, and removes the pod from the
// claims that are, unless it is retried.
func (p *Plugin) Unreserve(a framework.Assignment) {
	made := p.withdraw(a.Pod.UID)
	if made == nil {
		return
	}
	for _, part := range made.parts {
		if part.allocation != nil {
			p.release(part.claim.UID)
		}
		latest := part.claim
		if part.stored != nil {
			latest = part.stored
		}
		switch {
		case a.Retried:
		case part.special && part.stored != nil:
			p.api.Delete(latest, a.Pod.Object)
		case latest.Status.Allocation != nil && resourceclaim.IsReservedForPod(a.Pod.Object, latest, false):
			p.api.Release(latest, a.Pod.Object)
		}
	}
}

// withdraw removes the plan of a pod; nil: there is none.
func (p *Plugin) withdraw(pod types.UID) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := p.plans[pod]
	delete(p.plans, pod)
	return made
}

func (p *Plugin) planOf(pod types.UID) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plans[pod]
}

// PreBindPreFlight reports whether PreBind may wait for a driver to make the devices
// ready.
func (p *Plugin) PreBindPreFlight(a framework.Assignment) bool {
	made := p.planOf(a.Pod.UID)
	return made != nil && slices.ContainsFunc(made.parts, func(part part) bool {
		return hasConditions(cmp.Or(part.allocation, part.claim.Status.Allocation))
	})
}

// PreBind writes allocations and reservations, and waits until the devices are
// ready.
func (p *Plugin) PreBind(ctx context.Context, a framework.Assignment) framework.Status {
	made := p.planOf(a.Pod.UID)
	if made == nil {
		return framework.Status{}
	}
	waits := false
	var claims []types.NamespacedName
	for i := range made.parts {
		claim, err := p.write(ctx, a, made, i)
		if err != nil {
			return framework.AsStatus(err)
		}
		waits = waits || hasConditions(claim.Status.Allocation)
		claims = append(claims, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	}
	if !waits {
		return framework.Status{}
	}
	err := p.api.Await(ctx, a.Pod.Object, a.Node.Name.Value(), p.bindingTimeout, claims, func(now time.Time, claims []*resourceapi.ResourceClaim) (bool, error) {
		return areReady(claims, now, p.bindingTimeout)
	})
	if err != nil {
		return framework.AsStatus(err)
	}
	return framework.Status{}
}

// write writes one claim of a plan and returns its stored version.
func (p *Plugin) write(ctx context.Context, a framework.Assignment, made *plan, i int) (*resourceapi.ResourceClaim, error) {
	part := &made.parts[i]
	if resourceclaim.IsReservedForPod(a.Pod.Object, part.claim, false) {
		return part.claim, nil
	}
	claim := part.claim
	store := func(stored *resourceapi.ResourceClaim) {
		p.mu.Lock()
		part.stored = stored
		p.mu.Unlock()
	}
	if part.special {
		created := claim.DeepCopy()
		created.Name, created.UID = "", ""
		var err error
		if claim, err = p.api.Create(ctx, created); err != nil {
			return nil, fmt.Errorf("create claim for extended resources: %w", err)
		}
		store(claim)
	}
	stored, err := p.api.Reserve(ctx, claim, part.allocation, a.Pod.Object)
	if err != nil {
		return nil, err
	}
	store(stored)
	if part.allocation != nil {
		p.wrote(part.claim.UID, stored)
	}
	if part.special {
		status := &v1.PodExtendedResourceClaimStatus{RequestMappings: made.mappings, ResourceClaimName: stored.Name}
		if err := p.api.SetExtended(ctx, a.Pod.Object, status); err != nil {
			return nil, fmt.Errorf("update pod %s ExtendedResourceClaimStatus: %w", a.Pod, err)
		}
	}
	return stored, nil
}

// PostBind forgets the plan.
func (p *Plugin) PostBind(_ context.Context, a framework.Assignment) { p.withdraw(a.Pod.UID) }

// PostFilter deallocates a claim that is allocated, but not available on a node, and
// that no other pod uses; or it deletes the special claim of an earlier attempt.
func (p *Plugin) PostFilter(c *framework.Cycle) (framework.Nomination, framework.Status) {
	rejected := func(reason string) (framework.Nomination, framework.Status) {
		return framework.Nomination{}, framework.Status{Code: framework.Unschedulable, Reason: reason}
	}
	attempted := p.attempted
	if p.attempted = nil; attempted != c.Pod {
		return rejected("") // another plugin rejected the pod before PreFilter
	}
	for _, i := range slices.Sorted(maps.Keys(p.deferred)) {
		if claim := p.existing[i]; p.deferred[i] && isFree(claim.ResourceClaim, c.Pod.UID) {
			once(c, claim.ResourceClaim, p.api.Deallocate)
			return rejected("deallocation of ResourceClaim completed")
		}
	}
	if p.stale {
		once(c, p.special, p.api.Delete)
		return rejected("deletion of ResourceClaim completed")
	}
	return rejected("")
}

// removal is what PostFilter has queued for a version of a claim.
type removal struct {
	claim   types.UID
	version string
}

func (removal) Answered() <-chan struct{} { return answered }

var answered = func() <-chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// once queues a removal, unless an earlier run of the attempt has: an extender that
// another PostFilter plugin asks suspends the attempt.
func once(c *framework.Cycle, claim *resourceapi.ResourceClaim, remove func(*resourceapi.ResourceClaim, *v1.Pod)) {
	this := removal{claim.UID, claim.ResourceVersion}
	c.Ask(func(sent framework.Request) bool { return sent == framework.Request(this) }, func(context.Context) framework.Request {
		remove(claim, c.Pod.Object)
		return this
	})
}

// PodGroupPostFilter runs PostFilter for the pods of a group that may use devices.
func (p *Plugin) PodGroupPostFilter(a *framework.PodGroupAttempt) (framework.PodGroupNomination, framework.Status) {
	for _, pod := range a.Pods {
		if len(pod.Object.Spec.ResourceClaims) > 0 || len(pod.Requests.Extended) > 0 {
			p.PostFilter(a.Evaluate(pod))
		}
	}
	return framework.PodGroupNomination{}, framework.Status{Code: framework.Unschedulable, Reason: "deallocation and deletion of ResourceClaims completed"}
}

// isFree reports whether a claim is reserved for no other pod.
func isFree(claim *resourceapi.ResourceClaim, pod types.UID) bool {
	reserved := claim.Status.ReservedFor
	return len(reserved) == 0 || len(reserved) == 1 && reserved[0].UID == pod
}
