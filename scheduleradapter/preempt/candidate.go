package preempt

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// candidate is a node that is feasible without the victims; there is at least one,
// the most important first.
type candidate struct {
	row        nodetable.Row
	victims    []*nodetable.Pod
	violations int // victims that a budget protects
}

// pickOneNode selects the candidate with the least cost; of equal ones the first, which is
// random because the search starts at a random node. Source: kube-scheduler's
// pickOneNodeForPreemption.
func pickOneNode(candidates []candidate) candidate {
	return slices.MinFunc(candidates, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(a.violations, b.violations),
			cmp.Compare(a.victims[0].Priority, b.victims[0].Priority),
			cmp.Compare(a.weight(), b.weight()),
			cmp.Compare(len(a.victims), len(b.victims)),
			cmp.Compare(b.earliestStart(), a.earliestStart()),
		)
	})
}

// weight is the sum of the victims' priorities, each shifted to be positive.
func (c candidate) weight() (sum int64) {
	for _, v := range c.victims {
		sum += int64(v.Priority) - math.MinInt32
	}
	return sum
}

// earliestStart is the earliest start of the victims with the highest priority.
func (c candidate) earliestStart() int64 {
	first := int64(math.MaxInt64)
	for _, v := range c.victims {
		if v.Priority == c.victims[0].Priority {
			first = min(first, started(v))
		}
	}
	return first
}

// started is the start time of a pod; a pod that has not started is the latest.
func started(p *nodetable.Pod) int64 {
	if p.Started.IsZero() {
		return math.MaxInt64
	}
	return p.Started.UnixNano()
}

// sortByImportance sorts by priority, then by start, then by name.
func sortByImportance(pods []*nodetable.Pod) {
	slices.SortFunc(pods, func(a, b *nodetable.Pod) int {
		return cmp.Or(
			cmp.Compare(b.Priority, a.Priority),
			cmp.Compare(started(a), started(b)),
			strings.Compare(a.Namespace.Value(), b.Namespace.Value()),
			strings.Compare(a.Name, b.Name),
		)
	})
}
