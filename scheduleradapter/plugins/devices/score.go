package devices

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// PreScore skips pods without claims.
func (p *Plugin) PreScore(*framework.Cycle) framework.Status {
	if p.ScoresAlike() {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

// ScoresAlike is true for pods without claims.
func (p *Plugin) ScoresAlike() bool { return len(p.podClaims) == 0 && p.special == nil }

// Score prefers nodes whose allocations use earlier alternatives of prioritized
// lists.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	clear(scores)
	for i, row := range rows {
		v := p.variants[p.lacking(c.Table, row)]
		if v == nil || len(v.claims) == 0 {
			continue
		}
		scores[i] = v.memo.results[row].score
		for _, claim := range p.existing {
			scores[i] += alternatives(claim.ResourceClaim, claim.Status.Allocation)
		}
	}
	return framework.Status{}
}

// Normalize scales the scores so that the highest is framework.MaxScore.
func (*Plugin) Normalize(_ *framework.Cycle, _ []nodetable.Row, scores []int64) framework.Status {
	if _, most := framework.Extremes(scores); most > 0 {
		for i := range scores {
			scores[i] = scores[i] * framework.MaxScore / most
		}
	}
	return framework.Status{}
}

func (p *Plugin) score(claims []*resourceapi.ResourceClaim, allocations []resourceapi.AllocationResult) (sum int64) {
	for i, claim := range claims {
		sum += alternatives(claim, &allocations[i])
	}
	return sum
}

// alternatives is the sum over the prioritized lists of a claim: 8 for the first
// alternative, 7 for the second, and so on.
func alternatives(claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult) (sum int64) {
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		for j := range r.FirstAvailable {
			name := resourceclaim.CreateSubRequestRef(r.Name, r.FirstAvailable[j].Name)
			if slices.ContainsFunc(allocation.Devices.Results, func(d resourceapi.DeviceRequestAllocationResult) bool { return d.Request == name }) {
				sum += int64(resourceapi.FirstAvailableDeviceRequestMaxSize - j)
			}
		}
	}
	return sum
}
