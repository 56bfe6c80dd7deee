package spread

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// rules are the constraints of one kind of the pod at hand. They are used again
// for the next pod.
type rules struct {
	constraints []nodetable.SpreadConstraint
	list        []rule
	// everyLabel asks for nodes that have the labels of all rules: labelled are
	// those, else all nodes.
	everyLabel bool
	labelled   nodetable.Bits
}

// rule is a constraint with the part of the cluster it is about.
type rule struct {
	*nodetable.SpreadConstraint
	topology *nodetable.Topology
	// nodes are those whose pods count; whole says that they are all that have the
	// topology's label.
	nodes nodetable.Bits
	whole bool
	// sizes are the numbers of these nodes by domain, and domains the number of
	// those that have any.
	sizes   []int32
	domains int64
	// surveyed and counted are the memory of sizes and counts.
	surveyed, counted []int32

	counts []int32 // of pods, for scores: by domain, or by row where perNode
	scale
}

// prepare finds out which nodes count for each rule.
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

// survey finds out which domains count.
func (r *rule) survey() {
	if r.whole {
		r.sizes, r.domains = r.topology.Nodes, int64(r.topology.Live)
		return
	}
	r.surveyed = zeros(r.surveyed, len(r.topology.Nodes))
	r.sizes, r.domains = r.surveyed, 0
	for row := range r.nodes.All() {
		domain := r.topology.Of[row]
		if r.sizes[domain]++; r.sizes[domain] == 1 {
			r.domains++
		}
	}
}

// count is the number of pods in each domain, as the table is now. A selector
// without any requirement counts none.
func (r *rule) count(t *nodetable.Table) []int32 {
	if r.whole && !r.Pods.Empty() {
		return t.Counter(r.Pods).In(r.topology)
	}
	r.counted = zeros(r.counted, len(r.topology.Nodes))
	if r.Pods.Empty() {
		return r.counted
	}
	for _, pods := range t.Counter(r.Pods).Rows() {
		if r.nodes.Has(pods.Row) {
			r.counted[r.topology.Of[pods.Row]] += pods.Count
		}
	}
	return r.counted
}

// extremes are the fewest and the most pods of a domain. Where there are fewer
// domains than there should be, the fewest are none.
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

// zeros is n zeros, in the memory of s where that suffices.
func zeros(s []int32, n int) []int32 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}
