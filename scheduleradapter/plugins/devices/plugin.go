package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "DynamicResources"

// Plugin is DynamicResources: it rejects nodes on which the claims of the pod are
// not available and cannot be allocated.
type Plugin struct {
	*Store
	filterTimeout, bindingTimeout time.Duration

	// Of the pod of the cycle:
	podClaims []*claim                   // in the order of the spec
	special   *resourceapi.ResourceClaim // for extended resources; nil: none
	stale     bool                       // special is of an earlier attempt
	mapped    []mappedResource           // extended resources with a device class
	unmapped  []nodetable.Amount
	allocates []*resourceapi.ResourceClaim // claims without an allocation, the special one last
	shapes    []string                     // of allocates, without the special claim
	existing  []allocatedClaim
	variants  map[uint32]*variant // by the set of mapped resources that a node has no allocatable amount of
	attempted *nodetable.Pod      // of the last PreFilter, until PostFilter
	deferred  map[int]bool        // indices in existing of claims that are not available on a node
	open      nodetable.Bits      // buffer
	some      nodetable.Bits      // buffer

	mu    sync.Mutex
	plans map[types.UID]*plan // reserved pods
}

// allocatedClaim is a claim of the pod with an allocation.
type allocatedClaim struct {
	*resourceapi.ResourceClaim
	nodes *nodetable.NodeSelector // nil: every node
	// lost: a device has failed to become ready, or has not become ready in time.
	lost bool
}

// variant is what the pod needs on nodes that lack the same extended resources.
type variant struct {
	claims   []*resourceapi.ResourceClaim
	mappings []mapping
	memo     *memo
}

// Reasons of a rejection.
const (
	cannotAllocate = 1 + iota
	notAvailable
	invalidPools
	staleSpecial
	lacksResource
)

var reasons = [...]string{
	cannotAllocate: "cannot allocate all claims",
	notAvailable:   "resourceclaim not available on the node",
	invalidPools:   "invalid resource pools were encountered",
	staleSpecial:   "cannot schedule extended resource claim",
	lacksResource:  "cannot fit resource",
}

// notServed is the reason if the API server has no claims.
const notServed = "the API server does not serve resource.k8s.io/v1, which the pod's resource claims need"

// New makes the plugin; args are a DynamicResourcesArgs with its defaults.
func (s *Store) New(args any, _ framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.DynamicResourcesArgs)
	if !ok || a.FilterTimeout == nil || a.BindingTimeout == nil {
		return nil, fmt.Errorf("%s: arguments are %T without timeouts", Name, args)
	}
	return &Plugin{
		Store: s, filterTimeout: a.FilterTimeout.Duration, bindingTimeout: a.BindingTimeout.Duration,
		variants: map[uint32]*variant{}, deferred: map[int]bool{}, plans: map[types.UID]*plan{},
	}, nil
}

func (*Plugin) Name() string { return Name }

// IgnoresPods is implemented: claims, not the pods of a node, hold devices.
func (*Plugin) IgnoresPods() {}

// PreEnqueue gates a pod until its claims exist.
func (p *Plugin) PreEnqueue(pod *nodetable.Pod) framework.Status {
	if !p.served {
		return framework.Status{}
	}
	if _, err := p.claimsOf(pod.Object, nil); err != nil {
		return unresolvable(err.Error())
	}
	return framework.Status{}
}

func unresolvable(reason string) framework.Status {
	return framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: reason}
}

// PreFilter divides the claims into allocated ones and those to allocate.
func (p *Plugin) PreFilter(c *framework.Cycle) framework.Status {
	p.reset()
	p.attempted = c.Pod
	pod := c.Pod.Object
	if !p.served && len(pod.Spec.ResourceClaims) > 0 {
		return unresolvable(notServed)
	}
	var err error
	if p.podClaims, err = p.claimsOf(pod, p.podClaims); err != nil {
		return unresolvable(err.Error())
	}
	if s := p.findResources(c.Pod); !s.OK() {
		return s
	}
	if len(p.podClaims) == 0 && p.special == nil {
		return framework.Status{Code: framework.Skip}
	}
	for _, claim := range p.podClaims {
		if s := p.prepare(c, claim); !s.OK() {
			return s
		}
	}
	if p.special != nil && !p.stale {
		p.allocates = append(p.allocates, p.special)
	}
	return framework.Status{}
}

func (p *Plugin) reset() {
	p.podClaims, p.special, p.stale = p.podClaims[:0], nil, false
	p.mapped, p.unmapped = p.mapped[:0], p.unmapped[:0]
	p.allocates, p.shapes, p.existing = p.allocates[:0], p.shapes[:0], p.existing[:0]
	clear(p.variants)
	clear(p.deferred)
}

func (p *Plugin) prepare(c *framework.Cycle, claim *claim) framework.Status {
	object, held := claim.ResourceClaim, p.pending[claim.UID]
	if held != nil && c.WhatIf { // the pods that share a claim wait until its allocation is written
		object = held.claim
	}
	if allocation := object.Status.Allocation; allocation != nil {
		nodes := nodetable.NewNodeSelector(nil, allocation.NodeSelector)
		p.existing = append(p.existing, allocatedClaim{object, nodes, isLost(object, c.Now, p.bindingTimeout)})
		return framework.Status{}
	}
	if held != nil {
		return unresolvable(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name))
	}
	if s := p.checkRequests(claim.ResourceClaim); !s.OK() {
		return s
	}
	if claim.shape == "" {
		shape, err := shapeOf(&claim.Spec)
		if err != nil {
			return framework.AsStatus(err)
		}
		claim.shape = shape
	}
	p.allocates, p.shapes = append(p.allocates, claim.ResourceClaim), append(p.shapes, claim.shape)
	return framework.Status{}
}

// checkRequests requires that the device classes of a claim exist.
func (p *Plugin) checkRequests(claim *resourceapi.ResourceClaim) framework.Status {
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		switch {
		case r.Exactly != nil:
			if s := p.checkClass(r.Name, r.Exactly.DeviceClassName); !s.OK() {
				return s
			}
		case len(r.FirstAvailable) > 0:
			for j := range r.FirstAvailable {
				if s := p.checkClass(resourceclaim.CreateSubRequestRef(r.Name, r.FirstAvailable[j].Name), r.FirstAvailable[j].DeviceClassName); !s.OK() {
					return s
				}
			}
		default:
			return unresolvable(fmt.Sprintf("resource claim %s/%s, request %s: unknown request type", claim.Namespace, claim.Name, r.Name))
		}
	}
	return framework.Status{}
}

func (p *Plugin) checkClass(request, class string) framework.Status {
	switch {
	case class == "":
		return framework.AsStatus(fmt.Errorf("request %s: unsupported request type", request))
	case p.classes[class] == nil:
		return unresolvable(fmt.Sprintf("request %s: device class %s does not exist", request, class))
	}
	return framework.Status{}
}

// Filter rejects nodes that cannot have the claims. A claim that is not available
// somewhere may be deallocated by PostFilter.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	if p.filterResources(c); c.Feasible.Empty() {
		return framework.Status{}
	}
	if len(p.allocates) > 0 {
		if s := p.filterAllocations(c); !s.OK() {
			return s
		}
	}
	for i, claim := range p.existing {
		p.open = p.open.Copied(c.Feasible)
		if !claim.lost {
			p.some = p.table.Nodes(claim.nodes, p.some)
			p.open.AndNot(p.some)
		}
		p.deferred[i] = p.deferred[i] || !p.open.Empty()
	}
	for _, claim := range p.existing {
		p.open = p.open.Copied(c.Feasible)
		if !claim.lost {
			p.some = p.table.Nodes(claim.nodes, p.some)
			p.open.AndNot(p.some)
		}
		c.RejectAll(p.open, notAvailable, true)
	}
	return framework.Status{}
}

// filterAllocations rejects nodes on which the allocator finds no devices.
func (p *Plugin) filterAllocations(c *framework.Cycle) framework.Status {
	if len(p.mapped) == 0 {
		return p.filterVariant(c, 0, c.Feasible)
	}
	rows := map[uint32]nodetable.Bits{}
	for row := range c.Feasible.All() {
		set := p.lacking(c.Table, row)
		if rows[set] == nil {
			rows[set] = nodetable.Bits(nil).Emptied(c.Table.Rows())
		}
		rows[set].Set(row)
	}
	for set, some := range rows {
		if s := p.filterVariant(c, set, some); !s.OK() {
			return s
		}
	}
	return framework.Status{}
}

func (p *Plugin) filterVariant(c *framework.Cycle, set uint32, rows nodetable.Bits) framework.Status {
	v, err := p.variant(c.Pod.Object, set)
	if err != nil {
		return framework.AsStatus(err)
	}
	if len(v.claims) == 0 {
		return framework.Status{} // the nodes' own extended resources suffice
	}
	if err := p.evaluateAll(c, v, rows); err != nil {
		return framework.AsStatus(err)
	}
	p.open = p.open.Copied(rows)
	p.open.And(v.memo.known)
	p.open.AndNot(v.memo.fits)
	for row := range p.open.All() {
		c.Reject(row, v.memo.results[row].reason, true)
	}
	return framework.Status{}
}

// fewUnknown is a number of nodes without a known result for which the allocator runs
// even if fewer feasible nodes suffice.
const fewUnknown = 64

// evaluateAll runs the allocator for the rows without a known result. If there are
// many, it leaves out those after enough feasible ones.
func (p *Plugin) evaluateAll(c *framework.Cycle, v *variant, rows nodetable.Bits) error {
	p.open = p.open.Copied(rows)
	p.open.AndNot(v.memo.known)
	if p.open.Count() <= fewUnknown {
		for row := range p.open.All() {
			if err := p.evaluate(v, row, c.Table.Node(row)); err != nil {
				return err
			}
		}
		return nil
	}
	order, enough := c.Search()
	found := 0
	for row := range order {
		switch {
		case !rows.Has(row):
			continue
		case !p.open.Has(row):
		case found >= enough:
			c.LeaveOut(row)
			continue
		default:
			if err := p.evaluate(v, row, c.Table.Node(row)); err != nil {
				return err
			}
		}
		if v.memo.fits.Has(row) {
			found++
		}
	}
	return nil
}

// evaluate runs the allocator for a node. The error ends the attempt.
func (p *Plugin) evaluate(v *variant, row nodetable.Row, node *nodetable.Node) error {
	m := v.memo
	bare := p.inventory.isBare(node.Name)
	if bare && m.bare != nil {
		m.set(row, *m.bare, node)
		return nil
	}
	r, err := p.allocate(v.claims, node)
	if err != nil {
		return err
	}
	if m.set(row, r, node); bare {
		m.bare = &r
	}
	return nil
}

func (p *Plugin) allocate(claims []*resourceapi.ResourceClaim, node *nodetable.Node) (r result, err error) {
	allocator, err := p.allocatorFor(node, p.allocated)
	if err != nil {
		return r, err
	}
	ctx, cancel := p.api.WithTimeout(p.ctx, p.filterTimeout)
	defer cancel()
	r.allocations, err = allocator.Allocate(ctx, node.Object, claims)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return r, fmt.Errorf("node %s: timed out trying to allocate devices", node.Name.Value())
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		r.allocations, r.reason = nil, invalidPools
	case err != nil:
		return r, err
	case len(r.allocations) != len(claims):
		r.allocations, r.reason = nil, cannotAllocate
	default:
		r.score = p.score(claims, r.allocations)
	}
	return r, nil
}

func (m *memo) set(row nodetable.Row, r result, node *nodetable.Node) {
	r.node = node
	m.results[row] = r
	m.known.Set(row)
	if r.allocations == nil {
		m.fits.Clear(row)
	} else {
		m.fits.Set(row)
	}
}

// variant finds what the pod needs on nodes without a set of extended resources.
func (p *Plugin) variant(pod *v1.Pod, set uint32) (*variant, error) {
	if v := p.variants[set]; v != nil {
		return v, nil
	}
	v := &variant{claims: p.allocates}
	shapes := p.shapes
	if p.special != nil && !p.stale {
		v.claims = slices.Clone(p.allocates[:len(p.allocates)-1])
		if set != 0 {
			special := p.special.DeepCopy()
			special.Spec.Devices.Requests, v.mappings = p.requests(pod, set)
			shape, err := shapeOf(&special.Spec)
			if err != nil {
				return nil, err
			}
			v.claims, shapes = append(v.claims, special), append(slices.Clone(shapes), shape)
		}
	}
	if len(v.claims) > 0 {
		v.memo = p.memoFor(shapes)
	}
	p.variants[set] = v
	return v, nil
}

func (*Plugin) Reasons(_ *nodetable.Pod, reason uint32) []string { return []string{reasons[reason]} }
