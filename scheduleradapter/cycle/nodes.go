package cycle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// NodeSummary describes a node: its resources in millicores, bytes and pods, and
// its conditions, taints and evictions.
type NodeSummary struct {
	Name string   `json:"name"`
	Kind NodeKind `json:"kind"`
	// Ready is the condition Ready; Conditions are the other true conditions.
	Ready         bool     `json:"ready"`
	Unschedulable bool     `json:"unschedulable,omitempty"`
	Conditions    []string `json:"conditions,omitempty"`
	Taints        []string `json:"taints,omitempty"`
	// Levels are ok, tight, soft or hard by signal, as evictd publishes them. Silent:
	// the Lease of evictd is not renewed.
	Levels map[string]string `json:"levels,omitempty"`
	Silent bool              `json:"silent,omitempty"`
	// Evicted is the number of recent evictions from the node.
	Evicted int   `json:"evicted,omitempty"`
	Given   Given `json:"given"`
}

// Given has the requested and the allocatable amount of each resource.
type Given struct {
	CPU    [2]int64 `json:"cpu"`
	Memory [2]int64 `json:"memory"`
	Pods   [2]int64 `json:"pods"`
}

// NodeKind is the worst that is known of a node.
type NodeKind string

// Kinds of nodes from the worst to the best: beyond a threshold, with a condition but
// Ready, near a threshold, not ready.
const (
	NodeHard    NodeKind = "hard"
	NodeSoft    NodeKind = "soft"
	NodePressed NodeKind = "pressed"
	NodeTight   NodeKind = "tight"
	NodeUnready NodeKind = "unready"
	NodeOK      NodeKind = "ok"
)

// NodeCursor is how far a reader has followed the nodes. The zero value is before all of
// them.
type NodeCursor struct {
	mark  uint64
	swept nodetable.Row
	stale nodetable.Bits // rows to visit
}

// sweptRows are visited in each round whether they have changed or not, because a Lease
// expires and evictions are forgotten without a change of the row.
const sweptRows = 512

// Next begins a round of visits: of the rows that have changed since the last one, and
// of the next few.
func (s *Scheduler) Next(of *NodeCursor) {
	t := s.Table
	rows := nodetable.Row(t.Rows())
	of.stale = of.stale.Grown(t.Rows())
	of.stale.SetAll(t.ChangedRows(of.mark))
	of.mark = t.Mark()
	for range min(sweptRows, rows) {
		of.swept %= rows
		of.stale.Set(of.swept)
		of.swept++
	}
}

// NodeUpdate is the state of a row; nil: it has no node.
type NodeUpdate struct {
	Row  int
	Node *NodeSummary
}

// Visit describes some of the rows that are left of a round, at most a number.
func (s *Scheduler) Visit(of *NodeCursor, now time.Time, most int) (updates []NodeUpdate, more bool) {
	for row := range of.stale.All() {
		if len(updates) == most {
			return updates, true
		}
		of.stale.Clear(row)
		u := NodeUpdate{Row: int(row)}
		if s.Table.Alive().Has(row) {
			u.Node = new(summarize(s.Table, row, now))
		}
		updates = append(updates, u)
	}
	return updates, false
}

func summarize(table *nodetable.Table, row nodetable.Row, now time.Time) NodeSummary {
	n := table.Node(row)
	given := func(c *nodetable.Column) [2]int64 { return [2]int64{c.Requested[row], c.Allocatable[row]} }
	s := NodeSummary{
		Name: n.Name.Value(), Unschedulable: n.Unschedulable, Evicted: len(table.Evictions(n.Name)),
		Given: Given{given(&table.CPU), given(&table.Memory), given(&table.Pods)},
	}
	for _, condition := range n.Conditions {
		switch {
		case condition.Status != v1.ConditionTrue:
		case condition.Type == v1.NodeReady:
			s.Ready = true
		default:
			s.Conditions = append(s.Conditions, string(condition.Type))
		}
	}
	for _, taint := range n.Taints {
		s.Taints = append(s.Taints, (&v1.Taint{Key: taint.Key.Value(), Value: taint.Value.Value(), Effect: taint.Effect}).ToString())
	}
	if h := table.Headroom(n.Name); h != nil {
		s.Silent, s.Levels = h.Until.Before(now), map[string]string{}
		for _, l := range h.Signals {
			s.Levels[l.Signal] = l.Level.String()
		}
	}
	s.Kind = s.kind()
	return s
}

func (s *NodeSummary) kind() NodeKind {
	has := func(level nodetable.Level) bool {
		for _, is := range s.Levels {
			if !s.Silent && is == level.String() {
				return true
			}
		}
		return false
	}
	switch {
	case !s.Ready:
		return NodeUnready
	case has(nodetable.LevelHard):
		return NodeHard
	case has(nodetable.LevelSoft):
		return NodeSoft
	case len(s.Conditions) > 0:
		return NodePressed
	case has(nodetable.LevelTight):
		return NodeTight
	}
	return NodeOK
}
