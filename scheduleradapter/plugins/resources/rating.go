package resources

import (
	"fmt"
	"math"

	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// rating scores the rows from one on with the pod, 0 to framework.MaxScore.
type rating func(columns []column, values []int64, from nodetable.Row)

func newRating(s *config.ScoringStrategy) (rating, error) {
	switch s.Type {
	case config.LeastAllocated:
		return allocated(true), nil
	case config.MostAllocated:
		return allocated(false), nil
	case config.RequestedToCapacityRatio:
		if s.RequestedToCapacityRatio == nil || len(s.RequestedToCapacityRatio.Shape) == 0 {
			return nil, fmt.Errorf("strategy %s has no shape", s.Type)
		}
		return alongShape(s.RequestedToCapacityRatio.Shape), nil
	}
	return nil, fmt.Errorf("%q is no scoring strategy", s.Type)
}

// allocated scores the free or used share of each resource in percent, truncated,
// averaged by the weights, truncated. Resources that a node does not have do not
// count.
func allocated(free bool) rating {
	var averages averages
	return func(columns []column, values []int64, from nodetable.Row) {
		if len(columns) == 2 {
			averages.fill(columns, values, from, free)
			return
		}
		for i := range values {
			values[i] = averageOf(columns, from+nodetable.Row(i), free)
		}
	}
}

// averageOf is the average of a row for any number of resources.
func averageOf(columns []column, row nodetable.Row, free bool) int64 {
	sum, weights := int64(0), int64(0)
	for i := range columns {
		c := &columns[i]
		if capacity, requested := c.on(row); capacity > 0 {
			sum += c.weight * percentage(requested+c.request, capacity, free)
			weights += c.weight
		}
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// percentage is the free or used share of a capacity, truncated.
func percentage(used, capacity int64, free bool) int64 {
	part := min(used, capacity)
	if free {
		part = capacity - part
	}
	return part * framework.MaxScore / capacity
}

// averages has the average of each sum of weighted shares, for the last sum of weights.
type averages struct {
	weights int64
	of      []int64
}

// mostWeights bounds averages.
const mostWeights = 100

// prepare computes the averages for a sum of weights up to mostWeights.
func (a *averages) prepare(weights int64) {
	if a.weights == weights {
		return
	}
	a.weights, a.of = weights, a.of[:0]
	for sum := int64(0); weights <= mostWeights && sum <= weights*framework.MaxScore; sum++ {
		a.of = append(a.of, sum/weights)
	}
}

// fill fills in the averages of two resources for the rows from one on.
func (a *averages) fill(columns []column, values []int64, from nodetable.Row, free bool) {
	one, other := &columns[0], &columns[1]
	a.prepare(one.weight + other.weight)
	has, used := one.of(from, len(values))
	hasOther, usedOther := other.of(from, len(values))
	has, used, hasOther, usedOther = has[:len(values)], used[:len(values)], hasOther[:len(values)], usedOther[:len(values)]
	request, requestOther, weight, weightOther, of := one.request, other.request, one.weight, other.weight, a.of
	for i := range values {
		if has[i] <= 0 || hasOther[i] <= 0 {
			values[i] = averageOf(columns, from+nodetable.Row(i), free)
			continue
		}
		sum := weight*percentage(used[i]+request, has[i], free) + weightOther*percentage(usedOther[i]+requestOther, hasOther[i], free)
		if uint64(sum) < uint64(len(of)) {
			values[i] = of[sum]
		} else {
			values[i] = sum / (weight + weightOther)
		}
	}
}

// alongShape interpolates a shape, whose scores are 0 to 10. Resources with score 0
// do not count; the average is rounded half away from zero.
func alongShape(shape []config.UtilizationShapePoint) rating {
	const scale = framework.MaxScore / 10
	line := func(utilization int64) int64 {
		for i, p := range shape {
			if utilization > int64(p.Utilization) {
				continue
			}
			if i == 0 {
				return int64(p.Score) * scale
			}
			before := shape[i-1]
			return int64(before.Score)*scale + int64(p.Score-before.Score)*scale*(utilization-int64(before.Utilization))/int64(p.Utilization-before.Utilization)
		}
		return int64(shape[len(shape)-1].Score) * scale
	}
	return func(columns []column, values []int64, from nodetable.Row) {
		for i := range values {
			values[i] = rateAlong(line, columns, from+nodetable.Row(i))
		}
	}
}

func rateAlong(line func(utilization int64) int64, columns []column, row nodetable.Row) int64 {
	sum, weights := int64(0), int64(0)
	for i := range columns {
		c := &columns[i]
		capacity, requested := c.on(row)
		if capacity == 0 {
			continue
		}
		if score := line(min(requested+c.request, capacity) * 100 / capacity); score > 0 {
			sum += c.weight * score
			weights += c.weight
		}
	}
	if weights == 0 {
		return 0
	}
	return int64(math.Round(float64(sum) / float64(weights)))
}
