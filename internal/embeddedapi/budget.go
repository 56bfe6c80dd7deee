package embeddedapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// computeDelay merges changes that follow each other, such as pods that become ready,
// into one computation.
const computeDelay = 50 * time.Millisecond

// keepBudgets computes all budgets whenever pods, their controllers or budgets
// change, until ctx ends.
func (a *API) keepBudgets(ctx context.Context) {
	a.keep(ctx, []string{"PodDisruptionBudget", "Pod", "ReplicaSet", "StatefulSet", "ReplicationController"}, func() error {
		a.budgets.Lock()
		defer a.budgets.Unlock()
		return a.computeBudgets("")
	})
}

// keep computes what follows from kinds, now and whenever their objects have changed, until ctx ends.
func (a *API) keep(ctx context.Context, kinds []string, compute func() error) {
	changed := make(chan struct{}, 1)
	var following sync.WaitGroup
	defer following.Wait()
	for _, name := range kinds {
		following.Go(func() { follow(ctx, a.kindOf(name).table, changed) })
	}
	for {
		if err := compute(); err != nil && ctx.Err() == nil {
			a.log.Error("the status of objects is not computed", "kind", kinds[0], "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(computeDelay):
		}
	}
}

// follow receives when a table has changed.
func follow(ctx context.Context, t *store.Table, changed chan<- struct{}) {
	for {
		more := t.More()
		select {
		case changed <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}

// computeBudgets updates the status of a namespace's budgets, of all where it is empty.
// The caller holds the lock of the budgets.
func (a *API) computeBudgets(namespace string) error {
	k := a.kindOf("PodDisruptionBudget")
	objects, _ := k.table.List(namespace)
	var faults []error
	for _, o := range objects {
		_, err := a.update(context.Background(), change{kind: k, key: store.KeyOf(o), internal: true, next: func(old store.Object) (store.Object, error) {
			budget := old.(*policyv1.PodDisruptionBudget).DeepCopy()
			budget.Status = a.budgetStatus(budget)
			return budget, nil
		}})
		if !apierrors.IsNotFound(err) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (a *API) budgetsOf(pod *v1.Pod) (budgets []*policyv1.PodDisruptionBudget) {
	objects, _ := a.kindOf("PodDisruptionBudget").table.List(pod.Namespace)
	for _, o := range objects {
		budget := o.(*policyv1.PodDisruptionBudget)
		if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
			budgets = append(budgets, budget)
		}
	}
	return budgets
}

// budgetStatus follows the disruption controller of kube-controller-manager. Evictions
// check and delete under the lock, so that disrupted pods need not be remembered.
func (a *API) budgetStatus(budget *policyv1.PodDisruptionBudget) policyv1.PodDisruptionBudgetStatus {
	status := *budget.Status.DeepCopy()
	status.ObservedGeneration = budget.Generation
	condition := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, ObservedGeneration: budget.Generation}
	pods, expected, desired, err := a.demand(budget)
	if err != nil {
		status.DisruptionsAllowed = 0
		condition.Reason, condition.Message = policyv1.SyncFailedReason, err.Error()
		meta.SetStatusCondition(&status.Conditions, condition)
		return status
	}
	var healthy int32
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && ready(pod) {
			healthy++
		}
	}
	status.ExpectedPods, status.DesiredHealthy, status.CurrentHealthy = expected, desired, healthy
	status.DisruptionsAllowed = 0
	condition.Reason = policyv1.InsufficientPodsReason
	if expected > 0 && healthy > desired {
		status.DisruptionsAllowed = healthy - desired
		condition.Status, condition.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

// demand is the pods that a budget selects, how many are expected and how many must be
// healthy.
func (a *API) demand(budget *policyv1.PodDisruptionBudget) (pods []*v1.Pod, expected, desired int32, err error) {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return nil, 0, 0, err
	}
	objects, _ := a.kindOf("Pod").table.List(budget.Namespace)
	for _, o := range objects {
		if selector.Matches(labels.Set(o.GetLabels())) {
			pods = append(pods, o.(*v1.Pod))
		}
	}
	least, most := budget.Spec.MinAvailable, budget.Spec.MaxUnavailable
	if least != nil && least.Type == intstr.Int {
		return pods, int32(len(pods)), least.IntVal, nil
	}
	if least == nil && most == nil {
		return pods, 0, 0, nil
	}
	if expected, err = a.scale(pods); err != nil {
		return nil, 0, 0, err
	}
	amount := least
	if most != nil {
		amount = most
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(amount, int(expected), true)
	if desired = int32(n); most != nil {
		desired = max(0, expected-desired)
	}
	return pods, expected, desired, err
}

// scale is the sum of the replicas of the pods' controllers. Pods without a controller
// do not count.
func (a *API) scale(pods []*v1.Pod) (total int32, err error) {
	counted := map[types.UID]bool{}
	for _, pod := range pods {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || counted[owner.UID] {
			continue
		}
		counted[owner.UID] = true
		var controller store.Object
		if k := a.kindOf(owner.Kind); k != nil && k.GroupVersion().String() == owner.APIVersion {
			controller = k.table.Get(store.Key{Namespace: pod.Namespace, Name: owner.Name})
		}
		replicas, scales := replicasOf(controller)
		if !scales || controller.GetUID() != owner.UID {
			return 0, fmt.Errorf("found no controllers for pod %q", pod.Name)
		}
		total += replicas
	}
	return total, nil
}

func replicasOf(controller store.Object) (n int32, scales bool) {
	switch c := controller.(type) {
	case *appsv1.ReplicaSet:
		return ptr.Deref(c.Spec.Replicas, 1), true
	case *appsv1.StatefulSet:
		return ptr.Deref(c.Spec.Replicas, 1), true
	case *v1.ReplicationController:
		return ptr.Deref(c.Spec.Replicas, 1), true
	}
	return 0, false
}
