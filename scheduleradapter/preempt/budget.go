package preempt

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// budget is a PodDisruptionBudget with its remaining disruptions.
type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

// budgets are those that match a pod. For preemption an empty or invalid selector
// matches none.
func (p *Plugin) budgets() (all []budget) {
	if p.env.Budgets == nil {
		return nil
	}
	for _, b := range p.env.Budgets() {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && !selector.Empty() {
			all = append(all, budget{b, selector})
		}
	}
	return all
}

// split divides pods, by importance, into those whose deletion violates a budget
// and the others. A pod that its budget already counts as disrupted violates none.
func split(pods []*nodetable.Pod, budgets []budget) (violating, others []*nodetable.Pod) {
	if len(budgets) == 0 {
		return nil, pods
	}
	left := make([]int32, len(budgets))
	for i, b := range budgets {
		left[i] = b.Status.DisruptionsAllowed
	}
	for _, pod := range pods {
		if violates(pod, budgets, left) {
			violating = append(violating, pod)
		} else {
			others = append(others, pod)
		}
	}
	return violating, others
}

func violates(pod *nodetable.Pod, budgets []budget, left []int32) bool {
	if len(pod.Object.Labels) == 0 {
		return false
	}
	for i, b := range budgets {
		if b.Namespace != pod.Object.Namespace || !b.selector.Matches(labels.Set(pod.Object.Labels)) {
			continue
		}
		if _, disrupted := b.Status.DisruptedPods[pod.Object.Name]; disrupted {
			continue
		}
		if left[i]--; left[i] < 0 {
			return true
		}
	}
	return false
}
