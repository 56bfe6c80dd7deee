package volumes

import (
	"math"
	"slices"

	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// PreScore skips pods without unbound claims.
func (b *Binding) PreScore(*framework.Cycle) framework.Status {
	if len(b.wants) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

// ScoresAlike is true for pods without unbound claims.
func (b *Binding) ScoresAlike() bool { return len(b.wants) == 0 }

// Score rates, for each storage class, the share of the found volumes that the
// claims use; without found volumes, the share of the storage capacity. It is the
// rounded mean of the classes.
func (b *Binding) Score(_ *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	for i, row := range rows {
		found := slices.ContainsFunc(b.wants, func(w *want) bool { return w.found[row] != nil })
		sum, classes := int64(0), 0
		for first, w := range b.wants {
			if !w.rated(row, found) || slices.ContainsFunc(b.wants[:first], func(other *want) bool { return other.class == w.class && other.rated(row, found) }) {
				continue
			}
			sum += b.rate(b.use(w.class, row, found))
			classes++
		}
		if scores[i] = 0; classes > 0 {
			scores[i] = int64(math.Round(float64(sum) / float64(classes)))
		}
	}
	return framework.Status{}
}

// rated reports whether a claim counts on a row.
func (w *want) rated(row nodetable.Row, found bool) bool {
	if found {
		return w.found[row] != nil
	}
	return w.space[row] != nil
}

// use is the requested percentage of a class's volumes or capacity on a row.
func (b *Binding) use(of *class, row nodetable.Row, found bool) int64 {
	requested, capacity := int64(0), int64(0)
	for _, w := range b.wants {
		if w.class != of || !w.rated(row, found) {
			continue
		}
		requested += w.size
		if found {
			capacity += w.found[row].capacity
		} else {
			capacity = w.space[row].total
		}
	}
	if capacity <= 0 || requested > capacity {
		return 100
	}
	return requested * 100 / capacity
}

// rating interpolates a shape, scaled to MaxScore.
func rating(shape []config.UtilizationShapePoint) func(int64) int64 {
	const scale = framework.MaxScore / 10
	return func(u int64) int64 {
		for i, p := range shape {
			if x, y := int64(p.Utilization), int64(p.Score)*scale; u <= x {
				if i == 0 {
					return y
				}
				x0, y0 := int64(shape[i-1].Utilization), int64(shape[i-1].Score)*scale
				return y0 + (y-y0)*(u-x0)/(x-x0)
			}
		}
		return int64(shape[len(shape)-1].Score) * scale
	}
}
