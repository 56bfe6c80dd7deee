package resources

import (
	"fmt"
	"math"

	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// rating of a node with the pod on it, 0 to framework.MaxScore.
type rating func(columns []column, row nodetable.Row) int64

func newRating(s *config.ScoringStrategy) (rating, error) {
	switch s.Type {
	case config.LeastAllocated:
		return average(func(capacity, used int64) int64 {
			return (capacity - min(used, capacity)) * framework.MaxScore / capacity
		}), nil
	case config.MostAllocated:
		return average(func(capacity, used int64) int64 {
			return min(used, capacity) * framework.MaxScore / capacity
		}), nil
	case config.RequestedToCapacityRatio:
		if s.RequestedToCapacityRatio == nil || len(s.RequestedToCapacityRatio.Shape) == 0 {
			return nil, fmt.Errorf("strategy %s has no shape", s.Type)
		}
		return alongShape(s.RequestedToCapacityRatio.Shape), nil
	}
	return nil, fmt.Errorf("%q is no scoring strategy", s.Type)
}

// average rates the resources that a node has and weighs them, rounding down.
func average(rate func(capacity, used int64) int64) rating {
	return func(columns []column, row nodetable.Row) int64 {
		sum, weights := int64(0), int64(0)
		for i := range columns {
			c := &columns[i]
			if capacity := c.allocatable[row]; capacity > 0 {
				sum += c.weight * rate(capacity, c.requested[row]+c.request)
				weights += c.weight
			}
		}
		if weights == 0 {
			return 0
		}
		return sum / weights
	}
}

// alongShape rates by the line through the points of a shape, whose scores go up
// to 10. A resource that scores 0 does not weigh; the average is rounded, half
// away from zero.
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
	return func(columns []column, row nodetable.Row) int64 {
		sum, weights := int64(0), int64(0)
		for i := range columns {
			c := &columns[i]
			capacity := c.allocatable[row]
			if capacity == 0 {
				continue
			}
			if score := line(min(c.requested[row]+c.request, capacity) * 100 / capacity); score > 0 {
				sum += c.weight * score
				weights += c.weight
			}
		}
		if weights == 0 {
			return 0
		}
		return int64(math.Round(float64(sum) / float64(weights)))
	}
}
