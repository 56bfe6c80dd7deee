package resources

import (
	"fmt"
	"math"

	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// BalancedName is the name of the plugin Balanced.
const BalancedName = "NodeResourcesBalancedAllocation"

// Balanced prefers nodes whose resources the pod brings closer to being used
// alike.
type Balanced struct {
	table    *nodetable.Table
	measured []measured
	columns  []column
	scores   *nodetable.Recent[nodetable.Shape, *memo]
}

// NewBalanced makes the plugin; args are a NodeResourcesBalancedAllocationArgs
// with its defaults.
func NewBalanced(args any, env framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.NodeResourcesBalancedAllocationArgs)
	if !ok {
		return nil, fmt.Errorf("%s: arguments are %T", BalancedName, args)
	}
	return &Balanced{table: env.Table, measured: newMeasured(a.Resources, true), scores: nodetable.NewRecent[nodetable.Shape, *memo](kept)}, nil
}

// Name of the plugin.
func (*Balanced) Name() string { return BalancedName }

// PreScore skips pods that request nothing: they shift no balance.
func (b *Balanced) PreScore(c *framework.Cycle) framework.Status {
	b.columns = columns(b.columns[:0], b.table, b.measured, &c.Pod.Requests)
	for i := range b.columns {
		if b.columns[i].request > 0 {
			return framework.Status{}
		}
	}
	return framework.Status{Code: framework.Skip}
}

// Score is 75 where the pod changes no balance, 50 where it ruins it and 100
// where it makes it (kube-scheduler 1.37).
func (b *Balanced) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	rated := of(b.scores, b.table, c.Pod.Requests.Shape, b.score)
	for i, row := range rows {
		scores[i] = rated[row]
	}
	return framework.Status{}
}

func (b *Balanced) score(row nodetable.Row) int64 {
	const half = framework.MaxScore / 2
	return half + (half+b.balance(row, 1)-b.balance(row, 0))/2
}

// balance is 100 where all resources are used alike with the pod there so many
// times, less by their standard deviation.
func (b *Balanced) balance(row nodetable.Row, pods int64) int64 {
	n, sum, squares := 0.0, 0.0, 0.0
	var used [2]float64
	for i := range b.columns {
		c := &b.columns[i]
		if c.allocatable[row] == 0 {
			continue
		}
		f := min(float64(c.requested[row]+pods*c.request)/float64(c.allocatable[row]), 1)
		if int(n) < len(used) {
			used[int(n)] = f
		}
		n, sum = n+1, sum+f
	}
	deviation := 0.0
	switch {
	case n == 2:
		deviation = math.Abs(used[0]-used[1]) / 2
	case n > 2:
		mean := sum / n
		for i := range b.columns {
			c := &b.columns[i]
			if c.allocatable[row] != 0 {
				f := min(float64(c.requested[row]+pods*c.request)/float64(c.allocatable[row]), 1)
				squares += (f - mean) * (f - mean)
			}
		}
		deviation = math.Sqrt(squares / n)
	}
	return int64((1 - deviation) * framework.MaxScore)
}
