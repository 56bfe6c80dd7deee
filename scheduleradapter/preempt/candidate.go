package preempt

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// candidate is a node where the pod fits once the victims are gone, of whom there
// is at least one, the most important first.
type candidate struct {
	row        nodetable.Row
	victims    []*nodetable.Pod
	violations int // victims that a budget protects
}

// pick is the candidate that costs least. Of equal ones it is the first, which is
// any, as the search begins at a random node.
func pick(candidates []candidate) candidate {
	return slices.MinFunc(candidates, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(a.violations, b.violations),
			cmp.Compare(a.victims[0].Priority, b.victims[0].Priority),
			cmp.Compare(a.weight(), b.weight()),
			cmp.Compare(len(a.victims), len(b.victims)),
			cmp.Compare(b.eldest(), a.eldest()),
		)
	})
}

// weight is the sum of the victims' priorities, shifted so that every victim
// adds, one of negative priority too.
func (c candidate) weight() (sum int64) {
	for _, v := range c.victims {
		sum += int64(v.Priority) - math.MinInt32
	}
	return sum
}

// eldest is when the first of the most important victims started.
func (c candidate) eldest() int64 {
	first := int64(math.MaxInt64)
	for _, v := range c.victims {
		if v.Priority == c.victims[0].Priority {
			first = min(first, started(v))
		}
	}
	return first
}

// started orders pods by their start; one that has not started yet does so now,
// after all others.
func started(p *nodetable.Pod) int64 {
	if p.Started.IsZero() {
		return math.MaxInt64
	}
	return p.Started.UnixNano()
}

// sortByImportance puts those first who should rather stay: of higher priority,
// then those that run longer; by name where they are equal.
func sortByImportance(pods []*nodetable.Pod) {
	slices.SortFunc(pods, func(a, b *nodetable.Pod) int {
		return cmp.Or(
			cmp.Compare(b.Priority, a.Priority),
			cmp.Compare(started(a), started(b)),
			strings.Compare(a.Object.Namespace, b.Object.Namespace),
			strings.Compare(a.Object.Name, b.Object.Name),
		)
	})
}
