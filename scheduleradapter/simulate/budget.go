package simulate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// disruptionsAllowed is that of the given status, or of the status that the disruption
// controller would write.
func (s *Simulation) disruptionsAllowed(budget *policyv1.PodDisruptionBudget) int32 {
	if !s.objects.uncounted[budget] {
		return budget.Status.DisruptionsAllowed
	}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return 0 // Load rejects it
	}
	var pods []*nodetable.Pod
	healthy := 0
	count := func(pod *nodetable.Pod, runs bool) {
		if pod.Object.Namespace == budget.Namespace && selector.Matches(labels.Set(pod.Object.Labels)) {
			pods = append(pods, pod)
			if runs && !pod.Terminating && ready(pod.Object) {
				healthy++
			}
		}
	}
	for _, pod := range s.Table.AllPods() {
		count(pod, !s.IsWaiting(pod.UID))
	}
	for _, e := range s.Queue.Entries() {
		count(e.Pod, false)
	}
	expected, desired := len(pods), 0
	least, most := budget.Spec.MinAvailable, budget.Spec.MaxUnavailable
	switch {
	case most != nil:
		expected = s.scale(pods)
		desired = max(expected-scaled(most, expected), 0)
	case least != nil && least.Type == intstr.String:
		expected = s.scale(pods)
		desired = scaled(least, expected)
	case least != nil:
		desired = least.IntValue()
	default:
		return 0
	}
	if expected == 0 {
		return 0
	}
	return int32(max(healthy-desired, 0))
}

// scaled is a number, or a percentage of all, rounded up.
func scaled(value *intstr.IntOrString, all int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, all, true)
	if err != nil {
		return 0
	}
	return n
}

// ready reports whether a pod is healthy; a pod without the condition Ready is.
func ready(pod *v1.Pod) bool {
	return !slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status != v1.ConditionTrue
	})
}

// scale is the expected number of pods by their controllers. A pod without a given
// controller counts itself.
func (s *Simulation) scale(pods []*nodetable.Pod) (n int) {
	counted := map[string]bool{}
	for _, pod := range pods {
		owner := metav1.GetControllerOf(pod.Object)
		if owner == nil {
			n++
			continue
		}
		replicas, known := s.replicas(pod.Object.Namespace, owner)
		switch name := owner.Kind + " " + owner.Name; {
		case !known:
			n++
		case !counted[name]:
			counted[name] = true
			n += int(replicas)
		}
	}
	return n
}

// replicas of the controller of an owner reference.
func (s *Simulation) replicas(namespace string, owner *metav1.OwnerReference) (int32, bool) {
	is := func(kind string, object metav1.Object) bool {
		return owner.Kind == kind && owner.Name == object.GetName() && namespace == object.GetNamespace()
	}
	for _, o := range s.objects.ReplicaSets {
		if is("ReplicaSet", o) {
			return ptr.Deref(o.Spec.Replicas, 1), true
		}
	}
	for _, o := range s.objects.ReplicationControllers {
		if is("ReplicationController", o) {
			return ptr.Deref(o.Spec.Replicas, 1), true
		}
	}
	for _, o := range s.objects.StatefulSets {
		if is("StatefulSet", o) {
			return ptr.Deref(o.Spec.Replicas, 1), true
		}
	}
	return 0, false
}
