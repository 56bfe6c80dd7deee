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
	var averages framework.Mapping
	return func(columns []column, values []int64, from nodetable.Row) {
		clear(values)
		weights, everywhere := int64(0), true
		for i := range columns {
			weights += columns[i].weight
			everywhere = columns[i].addShare(values, from, free) && everywhere
		}
		if everywhere && weights > 0 {
			averages.Apply(values, 0, weights*framework.MaxScore, func(sum int64) int64 { return sum / weights })
			return
		}
		for i, sum := range values {
			if weights := weightsOn(columns, from+nodetable.Row(i)); weights > 0 {
				values[i] = sum / weights
			}
		}
	}
}

// addShare adds the weighted share of the column to each value; false: some nodes
// do not have the resource.
func (c *column) addShare(values []int64, from nodetable.Row, free bool) (everywhere bool) {
	allocatable, requested := c.of(from, len(values))
	everywhere = true
	for i, capacity := range allocatable {
		if capacity <= 0 {
			everywhere = false
			continue
		}
		part := min(requested[i]+c.request, capacity)
		if free {
			part = capacity - part
		}
		values[i] += c.weight * (part * framework.MaxScore / capacity)
	}
	return everywhere
}

func weightsOn(columns []column, row nodetable.Row) (weights int64) {
	for i := range columns {
		if allocatable, _ := columns[i].on(row); allocatable > 0 {
			weights += columns[i].weight
		}
	}
	return weights
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
