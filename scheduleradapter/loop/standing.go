package loop

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// NodeStanding is how a node stands with the scheduler: what it has to give and
// gives, in millicores, bytes and pods, and what speaks against it.
type NodeStanding struct {
	Name string `json:"name"`
	// Ready is that condition; Conditions are the others that are true.
	Ready         bool     `json:"ready"`
	Unschedulable bool     `json:"unschedulable,omitempty"`
	Conditions    []string `json:"conditions,omitempty"`
	Taints        []string `json:"taints,omitempty"`
	// Levels are ok, tight, soft or hard by signal, as its evictd says; Silent says
	// that it has stopped to.
	Levels map[string]string `json:"levels,omitempty"`
	Silent bool              `json:"silent,omitempty"`
	// Evicted counts recent evictions from it.
	Evicted int   `json:"evicted,omitempty"`
	Given   Given `json:"given"`
}

// Given is what of each resource is requested, and what is allocatable.
type Given struct {
	CPU    [2]int64 `json:"cpu"`
	Memory [2]int64 `json:"memory"`
	Pods   [2]int64 `json:"pods"`
}

// Nodes tells how the nodes stand, in the order of their rows.
func (c *Core) Nodes(now time.Time) []NodeStanding {
	all := make([]NodeStanding, 0, c.Table.Len())
	for row := range c.Table.Alive().All() {
		all = append(all, c.standing(row, now))
	}
	return all
}

func (c *Core) standing(row nodetable.Row, now time.Time) NodeStanding {
	n := c.Table.Node(row)
	given := func(c *nodetable.Column) [2]int64 { return [2]int64{c.Requested[row], c.Allocatable[row]} }
	s := NodeStanding{
		Name: n.Name.Value(), Unschedulable: n.Unschedulable, Evicted: len(c.Table.Evictions(n.Name)),
		Given: Given{given(&c.Table.CPU), given(&c.Table.Memory), given(&c.Table.Pods)},
	}
	for i := range n.Object.Status.Conditions {
		condition := &n.Object.Status.Conditions[i]
		switch {
		case condition.Status != v1.ConditionTrue:
		case condition.Type == v1.NodeReady:
			s.Ready = true
		default:
			s.Conditions = append(s.Conditions, string(condition.Type))
		}
	}
	for i := range n.Object.Spec.Taints {
		s.Taints = append(s.Taints, n.Object.Spec.Taints[i].ToString())
	}
	if h := c.Table.Headroom(n.Name); h != nil {
		s.Silent, s.Levels = h.Until.Before(now), map[string]string{}
		for _, l := range h.Signals {
			s.Levels[l.Signal] = l.Level.String()
		}
	}
	return s
}
