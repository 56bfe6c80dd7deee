package spread

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// rules are the hard or the soft constraints of the pod of the cycle. They are
// reused.
type rules struct {
	constraints []nodetable.SpreadConstraint
	list        []rule
	// everyLabel: only nodes with all topology keys count, which are in labelled.
	everyLabel bool
	labelled   nodetable.Bits
}

// rule is a constraint with its nodes and domains.
type rule struct {
	*nodetable.SpreadConstraint
	topology *nodetable.Topology
	// nodes are those whose pods count; whole: they are all nodes with the topology
	// key.
	nodes nodetable.Bits
	whole bool
	// sizes are the numbers of these nodes by domain; domains is the number of
	// domains with nodes.
	sizes   []int32
	domains int64
	// sizeBuffer and counted are the memory of sizes and counts.
	sizeBuffer, counted []int32

	counts []int32 // of pods for scores, by domain, or by row if perNode
	limit  int64   // of pods of a domain, for FitsClass
	scale
}

func (s *rules) prepare(c *framework.Cycle, everyLabel bool) {
	s.everyLabel = everyLabel
	n := len(s.constraints)
	s.list = slices.Grow(s.list[:0], n)[:n]
	s.labelled = s.labelled.Copied(c.Table.Alive())
	for i := range s.list {
		r := &s.list[i]
		r.SpreadConstraint = &s.constraints[i]
		r.topology = c.Table.Topology(r.Topology)
		if everyLabel {
			s.labelled.And(r.topology.Labelled)
		}
	}
	for i := range s.list {
		s.list[i].include(c, s.labelled)
	}
}

func (r *rule) include(c *framework.Cycle, labelled nodetable.Bits) {
	r.nodes = r.nodes.Copied(labelled)
	r.nodes.And(r.topology.Labelled)
	if r.HonorNodes && c.Pod.Nodes != nil {
		r.nodes.And(c.Table.Select(c.Pod.Nodes))
	}
	if r.HonorTaints {
		r.nodes.AndNot(c.Table.Tainted(&c.Pod.Tolerations))
	}
	r.whole = slices.Equal(r.nodes, r.topology.Labelled)
}

func (r *rule) countDomains() {
	if r.whole {
		r.sizes, r.domains = r.topology.Nodes, int64(r.topology.Live)
		return
	}
	r.sizeBuffer = zeros(r.sizeBuffer, len(r.topology.Nodes))
	r.sizes, r.domains = r.sizeBuffer, 0
	for row := range r.nodes.All() {
		domain := r.topology.Of[row]
		if r.sizes[domain]++; r.sizes[domain] == 1 {
			r.domains++
		}
	}
}

// count is the number of pods by domain in the current table. An empty selector
// counts none.
func (r *rule) count(t *nodetable.Table) []int32 {
	if r.whole && !r.Pods.Empty() {
		return t.Counter(r.Pods).In(r.topology)
	}
	r.counted = zeros(r.counted, len(r.topology.Nodes))
	if r.Pods.Empty() {
		return r.counted
	}
	for pods := range t.Counter(r.Pods).Rows() {
		if r.nodes.Has(pods.Row) {
			r.counted[r.topology.Of[pods.Row]] += pods.Count
		}
	}
	return r.counted
}

// extremes are the lowest and highest number of pods of a domain. If there are
// fewer than minDomains domains, the lowest is 0.
func (r *rule) extremes(counts []int32) (least, most int64) {
	low, high := int32(-1), int32(0)
	for domain, nodes := range r.sizes {
		if nodes == 0 {
			continue
		}
		n := counts[domain]
		if low < 0 || n < low {
			low = n
		}
		high = max(high, n)
	}
	if r.domains < r.MinDomains {
		low = 0
	}
	return int64(low), int64(high)
}

// limits are the number of pods of a domain beyond which it is rejected, and the highest
// number of pods.
func (r *rule) limits(counts []int32) (limit, most int64) {
	least, most := r.extremes(counts)
	limit = least + r.MaxSkew
	if r.Self {
		limit--
	}
	return limit, most
}

// zeros is n zeros that reuse the memory of s.
func zeros(s []int32, n int) []int32 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}
