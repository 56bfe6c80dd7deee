package resources

import (
	"fmt"
	"math"
	"slices"

	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const BalancedName = "NodeResourcesBalancedAllocation"

// Balanced scores nodes by how a pod changes the balance of their resource usage.
type Balanced struct {
	table    *nodetable.Table
	measured []measured
	columns  []column
	baseline memo // balance without the pod, of all resources
	buffer   span // of baseline
	other    span // balance without the pod, of the resources that it requests
	scores   memos
}

// NewBalanced makes the plugin; args are a NodeResourcesBalancedAllocationArgs
// with its defaults.
func NewBalanced(args any, env framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.NodeResourcesBalancedAllocationArgs)
	if !ok {
		return nil, fmt.Errorf("%s: arguments are %T", BalancedName, args)
	}
	return &Balanced{table: env.Table, measured: newMeasured(a.Resources, true), scores: newMemos()}, nil
}

func (*Balanced) Name() string { return BalancedName }

// PreScore skips pods without requests.
func (b *Balanced) PreScore(c *framework.Cycle) framework.Status {
	b.columns = columns(b.columns[:0], b.table, b.measured, &c.Pod.Requests)
	for i := range b.columns {
		if b.columns[i].request > 0 {
			return framework.Status{}
		}
	}
	return framework.Status{Code: framework.Skip}
}

// Score is 75 if the balance does not change, 50 if it becomes the worst, 100 if it
// becomes the best. Source: kube-scheduler 1.37.
func (b *Balanced) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	b.scores.score(c.Pod.Requests.Shape, b.table, rows, scores, b.shift)
	return framework.Status{}
}

// SignScore prepares ScoreSpan. All scores are equal for pods without requests.
func (b *Balanced) SignScore(c *framework.Cycle, _ *framework.Signature) (scores, ok bool) {
	return b.PreScore(c).OK(), true
}

// ScoreSpan scores consecutive rows.
func (b *Balanced) ScoreSpan(_ *framework.Cycle, from nodetable.Row, scores []int64) {
	b.shift(scores, from)
}

// shift scores the change of the balance.
func (b *Balanced) shift(values []int64, from nodetable.Row) {
	const half = framework.MaxScore / 2
	b.balance(values, from, 1)
	change := func(before, after int64) int64 { return half + (half+after-before)/2 }
	if len(b.columns) < len(b.measured) {
		b.other = slices.Grow(b.other[:0], len(values))[:len(values)]
		b.balance(b.other, from, 0)
		for i, before := range b.other {
			values[i] = change(before, values[i])
		}
		return
	}
	// The balance without the pod is the same for all pods with all resources.
	baseline := b.baseline.refresh(b.table, &b.buffer, func(values []int64, from nodetable.Row) { b.balance(values, from, 0) })
	for i, before := range baseline[from:][:len(values)] {
		values[i] = change(int64(before), values[i])
	}
}

// balance is 100 minus the standard deviation of the resource shares with the pod
// added so many times, for the rows from one on.
func (b *Balanced) balance(values []int64, from nodetable.Row, pods int64) {
	if len(b.columns) != 2 {
		for i := range values {
			values[i] = b.balanceOf(from+nodetable.Row(i), pods)
		}
		return
	}
	one, other := &b.columns[0], &b.columns[1]
	oneMore, otherMore := pods*one.request, pods*other.request
	has, used := one.of(from, len(values))
	hasOther, usedOther := other.of(from, len(values))
	has, used, hasOther, usedOther = has[:len(values)], used[:len(values)], hasOther[:len(values)], usedOther[:len(values)]
	for i := range values {
		if has[i] == 0 || hasOther[i] == 0 {
			values[i] = b.balanceOf(from+nodetable.Row(i), pods)
			continue
		}
		values[i] = percent(math.Abs(share(used[i]+oneMore, has[i])-share(usedOther[i]+otherMore, hasOther[i])) / 2)
	}
}

// balanceOf is the balance of a row for any number of resources.
func (b *Balanced) balanceOf(row nodetable.Row, pods int64) int64 {
	n, sum, squares := 0.0, 0.0, 0.0
	var used [2]float64
	for i := range b.columns {
		c := &b.columns[i]
		allocatable, requested := c.on(row)
		if allocatable == 0 {
			continue
		}
		f := share(requested+pods*c.request, allocatable)
		if int(n) < len(used) {
			used[int(n)] = f
		}
		n, sum = n+1, sum+f
	}
	switch {
	case n < 2:
		return framework.MaxScore
	case n == 2:
		return percent(math.Abs(used[0]-used[1]) / 2)
	}
	mean := sum / n
	for i := range b.columns {
		c := &b.columns[i]
		if allocatable, requested := c.on(row); allocatable != 0 {
			f := share(requested+pods*c.request, allocatable)
			squares += (f - mean) * (f - mean)
		}
	}
	return percent(math.Sqrt(squares / n))
}

func share(used, allocatable int64) float64 {
	f := float64(used) / float64(allocatable)
	if f > 1 {
		f = 1
	}
	return f
}

func percent(deviation float64) int64 { return int64((1 - deviation) * framework.MaxScore) }
