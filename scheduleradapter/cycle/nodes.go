package cycle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// NodeSummary describes a node: its resources in millicores, bytes and pods, and
// its conditions, taints and evictions.
type NodeSummary struct {
	Name string `json:"name"`
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

// Nodes describes all nodes in the order of their rows.
func (s *Scheduler) Nodes(now time.Time) []NodeSummary {
	all := make([]NodeSummary, 0, s.Table.Len())
	for row := range s.Table.Alive().All() {
		all = append(all, summarize(s.Table, row, now))
	}
	return all
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
	return s
}
