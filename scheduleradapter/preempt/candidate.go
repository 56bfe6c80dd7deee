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
	// terminating: a victim terminates.
	terminating bool

	// priority is the highest of the victims, started the earliest start of those, and weight
	// the sum of the priorities of all, each shifted to be positive.
	priority        int32
	started, weight int64
}

func newCandidate(row nodetable.Row) candidate {
	return candidate{row: row, priority: math.MinInt32, started: math.MaxInt64}
}

// count counts a victim.
func (c *candidate) count(priority int32, started int64, terminating bool) {
	c.terminating = c.terminating || terminating
	switch {
	case priority > c.priority:
		c.priority, c.started = priority, started
	case priority == c.priority:
		c.started = min(c.started, started)
	}
	c.weight += int64(priority) - math.MinInt32
}

// pickOneNode selects the candidate with the least cost; of equal ones the first, which is
// random because the search starts at a random node. Source: kube-scheduler's
// pickOneNodeForPreemption.
func pickOneNode(candidates []candidate) *candidate {
	best := &candidates[0]
	for i := range candidates[1:] {
		if c := &candidates[1+i]; c.compare(best) < 0 {
			best = c
		}
	}
	return best
}

// compare compares the costs of two candidates.
func (c *candidate) compare(o *candidate) int {
	return cmp.Or(
		cmp.Compare(c.violations, o.violations),
		cmp.Compare(c.priority, o.priority),
		cmp.Compare(c.weight, o.weight),
		cmp.Compare(len(c.victims), len(o.victims)),
		cmp.Compare(o.started, c.started),
	)
}

// started is the start time of a pod; a pod that has not started is the latest.
func started(p *nodetable.Pod) int64 {
	if p.Started.IsZero() {
		return math.MaxInt64
	}
	return p.Started.UnixNano()
}

func sortByImportance(pods []*nodetable.Pod) { slices.SortFunc(pods, compareImportance) }

// compareImportance compares by priority, then by start, then by name.
func compareImportance(a, b *nodetable.Pod) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority),
		cmp.Compare(started(a), started(b)),
		strings.Compare(a.Namespace.Value(), b.Namespace.Value()),
		strings.Compare(a.Name, b.Name),
	)
}
