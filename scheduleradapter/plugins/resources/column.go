package resources

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// measured is a resource that scores use.
type measured struct {
	name   nodetable.Symbol
	weight int64
	// real uses the requests; otherwise containers without cpu or memory requests
	// count with the defaults.
	real bool
}

func newMeasured(specs []config.ResourceSpec, real bool) []measured {
	var all []measured
	for _, s := range specs {
		all = append(all, measured{nodetable.Intern(s.Name), max(s.Weight, 1), real})
	}
	return all
}

// column is a measured resource for a pod.
type column struct {
	allocatable, requested []int64
	sparse                 *nodetable.SparseColumn // nil: allocatable and requested are by row
	request, weight        int64
}

// on is the allocatable and the requested amount of a row.
func (c *column) on(row nodetable.Row) (allocatable, requested int64) {
	if c.sparse != nil {
		return c.sparse.On(row)
	}
	return c.allocatable[row], c.requested[row]
}

// of are the amounts of n rows from one on. Those of a sparse column are copied.
func (c *column) of(from nodetable.Row, n int) (allocatable, requested []int64) {
	if c.sparse == nil {
		return c.allocatable[from:][:n], c.requested[from:][:n]
	}
	c.allocatable, c.requested = slices.Grow(c.allocatable[:0], n)[:n], slices.Grow(c.requested[:0], n)[:n]
	for i := range n {
		c.allocatable[i], c.requested[i] = c.sparse.On(from + nodetable.Row(i))
	}
	return c.allocatable, c.requested
}

// columns appends the resources that count for a pod: extended resources only if
// requested. Requests of the pod level count only as real ones.
func columns(all []column, t *nodetable.Table, resources []measured, total *nodetable.Requests) []column {
	for _, m := range resources {
		c, r := column{weight: m.weight}, total
		if !m.real && total.Containers != nil {
			r = total.Containers
		}
		switch v1.ResourceName(m.name.Value()) {
		case v1.ResourceCPU:
			c.allocatable, c.requested, c.request = t.CPU.Allocatable, t.NonZeroCPU, r.NonZeroCPU
			if m.real {
				c.requested, c.request = t.CPU.Requested, r.CPU
			}
		case v1.ResourceMemory:
			c.allocatable, c.requested, c.request = t.Memory.Allocatable, t.NonZeroMemory, r.NonZeroMemory
			if m.real {
				c.requested, c.request = t.Memory.Requested, r.Memory
			}
		case v1.ResourceEphemeralStorage:
			c.allocatable, c.requested, c.request = t.Ephemeral.Allocatable, t.Ephemeral.Requested, r.Ephemeral
		default:
			extended := t.Extended(m.name)
			c.request = amount(r, m.name)
			if extended == nil || c.request == 0 {
				continue
			}
			c.sparse = extended
		}
		all = append(all, c)
	}
	return all
}

var nativeNames = [3]nodetable.Symbol{nodetable.Intern(string(v1.ResourceCPU)), nodetable.Intern(string(v1.ResourceMemory)), nodetable.Intern(string(v1.ResourceEphemeralStorage))}

func amount(r *nodetable.Requests, name nodetable.Symbol) int64 {
	return find(name, [3]int64{r.CPU, r.Memory, r.Ephemeral}, r.Extended)
}

func offer(n *nodetable.Node, name nodetable.Symbol) int64 {
	return find(name, [3]int64{n.CPU, n.Memory, n.Ephemeral}, n.Extended)
}

func find(name nodetable.Symbol, figures [3]int64, extended []nodetable.Amount) int64 {
	for i, known := range nativeNames {
		if name == known {
			return figures[i]
		}
	}
	for _, a := range extended {
		if a.Name == name {
			return a.Value
		}
	}
	return 0
}
