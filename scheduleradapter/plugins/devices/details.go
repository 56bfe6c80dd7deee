package devices

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Details names the claims and requests that the node cannot have, for the pod of
// the last PreFilter. It runs the allocator for each request.
func (p *Plugin) Details(c *framework.Cycle, row nodetable.Row) (details []string) {
	node := c.Table.Node(row)
	for _, claim := range p.existing {
		p.some = p.table.Nodes(claim.nodes, p.some)
		switch {
		case claim.lost:
			details = append(details, about(claim.ResourceClaim)+" is allocated, and its devices did not become ready")
		case !p.some.Has(row):
			details = append(details, about(claim.ResourceClaim)+" is allocated to devices of other nodes")
		}
	}
	v := p.variants[p.lacking(c.Table, row)]
	if v == nil || len(v.claims) == 0 || v.memo.fits.Has(row) {
		return details
	}
	for _, claim := range v.claims {
		details = append(details, p.explain(claim, node)...)
	}
	if len(details) == 0 {
		details = append(details, "each request fits alone, but not all requests of the claims together")
	}
	return details
}

func about(claim *resourceapi.ResourceClaim) string {
	if claim.Name == notCreated {
		return "the claim for extended resources"
	}
	return "claim " + claim.Namespace + "/" + claim.Name
}

// explain names the requests of a claim that do not fit alone.
func (p *Plugin) explain(claim *resourceapi.ResourceClaim, node *nodetable.Node) (details []string) {
	single := claim.DeepCopy()
	single.Spec.Devices.Constraints = nil
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		single.Spec.Devices.Requests = claim.Spec.Devices.Requests[i : i+1]
		why := "fewer devices match than are requested"
		switch {
		case p.fits(single, node, false):
			continue
		case p.inventory.isBare(node.Name):
			why = "the node has no devices"
		case p.fits(single, node, true):
			why = "matching devices are allocated to other claims"
		}
		details = append(details, fmt.Sprintf("%s, request %s (%s): %s", about(claim), r.Name, wish(r), why))
	}
	return details
}

// wish is what a request asks for.
func wish(r *resourceapi.DeviceRequest) string {
	switch {
	case r.Exactly == nil:
		return fmt.Sprintf("the first of %d alternatives", len(r.FirstAvailable))
	case r.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll:
		return "all of class " + r.Exactly.DeviceClassName
	}
	return fmt.Sprintf("%d of class %s", r.Exactly.Count, r.Exactly.DeviceClassName)
}

// fits reports whether a claim can be allocated on a node; unused: if no device of
// the cluster were allocated.
func (p *Plugin) fits(claim *resourceapi.ResourceClaim, node *nodetable.Node, unused bool) bool {
	allocated := p.allocated
	if unused {
		allocated = newAllocatedState()
	}
	allocator, err := p.allocatorFor(node, allocated)
	if err != nil {
		return false
	}
	ctx, cancel := p.api.WithTimeout(p.ctx, p.filterTimeout)
	defer cancel()
	found, err := allocator.Allocate(ctx, node.OwnObject(), []*resourceapi.ResourceClaim{claim})
	return err == nil && len(found) == 1
}
