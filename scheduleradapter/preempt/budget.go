package preempt

import (
	policyv1 "k8s.io/api/policy/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// budgets are the disruptions that budgets allow, and those that are left after the pods asked for.
type budgets struct {
	table         *nodetable.Table
	count         func(*policyv1.PodDisruptionBudget) int32 // nil: those of the status
	allowed, left map[*nodetable.Budget]int32
}

func newBudgets(p *Plugin) budgets {
	return budgets{p.env.Table, p.env.DisruptionsAllowed, map[*nodetable.Budget]int32{}, map[*nodetable.Budget]int32{}}
}

// protect appends for each pod of a node, by importance, whether its deletion violates a
// budget. A pod that its budget already counts as disrupted violates none. The disruption
// controller counts pods of lower priority as running.
func (b *budgets) protect(protected []bool, pods []ranked) []bool {
	if !b.table.HasBudgets() {
		return append(protected, make([]bool, len(pods))...)
	}
	clear(b.left)
	for i := range pods {
		protected = append(protected, b.violates(pods[i].pod))
	}
	return protected
}

// violates reports whether the deletion of a pod, after those asked for before, violates a budget.
func (b *budgets) violates(pod *nodetable.Pod) (violates bool) {
	b.table.Budgets(pod, func(budget *nodetable.Budget) {
		if _, disrupted := budget.Object.Status.DisruptedPods[pod.Name]; disrupted || violates {
			return
		}
		left, known := b.left[budget]
		if !known {
			left = b.disruptionsAllowed(budget)
		}
		b.left[budget] = left - 1
		violates = left <= 0
	})
	return violates
}

func (b *budgets) disruptionsAllowed(budget *nodetable.Budget) int32 {
	if b.count == nil {
		return budget.Object.Status.DisruptionsAllowed
	}
	allowed, known := b.allowed[budget]
	if !known {
		allowed = b.count(budget.Object)
		b.allowed[budget] = allowed
	}
	return allowed
}
