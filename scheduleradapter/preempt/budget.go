package preempt

import (
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// disruptions are the remaining disruptions of budgets.
type disruptions map[*nodetable.Budget]int32

// split divides pods, by importance, into those whose deletion violates a budget
// and the others. A pod that its budget already counts as disrupted violates none.
func (s *search) split(pods []*nodetable.Pod) (groups [2][]*nodetable.Pod) {
	clear(s.left)
	if !s.Table.HasBudgets() {
		groups[1] = pods
		return groups
	}
	for _, pod := range pods {
		group := &groups[1]
		if s.violates(pod) {
			group = &groups[0]
		}
		*group = append(*group, pod)
	}
	return groups
}

func (s *search) violates(pod *nodetable.Pod) (violates bool) {
	s.Table.Budgets(pod, func(b *nodetable.Budget) {
		if _, disrupted := b.Object.Status.DisruptedPods[pod.Object.Name]; disrupted || violates {
			return
		}
		left, known := s.left[b]
		if !known {
			left = s.disruptionsAllowed(b)
		}
		s.left[b] = left - 1
		violates = left <= 0
	})
	return violates
}

func (s *search) disruptionsAllowed(b *nodetable.Budget) int32 {
	count := s.plugin.env.DisruptionsAllowed
	if count == nil {
		return b.Object.Status.DisruptionsAllowed
	}
	allowed, known := s.allowed[b]
	if !known {
		allowed = count(b.Object)
		s.allowed[b] = allowed
	}
	return allowed
}
