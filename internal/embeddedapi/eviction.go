package embeddedapi

import (
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// evict deletes a pod where its disruption budget allows it, as EvictionREST of
// Kubernetes' pod registry does.
func (r *request) evict() (int, runtime.Object, error) {
	data, err := r.body()
	if err != nil {
		return 0, nil, err
	}
	eviction := &policyv1.Eviction{}
	if err := r.decode(data, r.Header.Get("Content-Type"), eviction, policyv1.SchemeGroupVersion.WithKind("Eviction")); err != nil {
		return 0, nil, err
	}
	if eviction.Name != "" && eviction.Name != r.name {
		return 0, nil, apierrors.NewBadRequest(fmt.Sprintf("name in URL does not match name in Eviction object: %s, %s", r.name, eviction.Name))
	}
	options := ptr.Deref(eviction.DeleteOptions, metav1.DeleteOptions{})
	if err := checkDeleteOptions(&options); err != nil {
		return 0, nil, err
	}
	dryRun := r.dryRun() || len(options.DryRun) > 0
	r.api.budgets.Lock()
	defer r.api.budgets.Unlock()
	object := r.kind.table.Get(r.key())
	if object == nil {
		return 0, nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	if err := checkPreconditions(r.kind, object, options.Preconditions); err != nil {
		return 0, nil, err
	}
	pod := object.(*v1.Pod)
	if err := r.api.allowed(pod); err != nil || dryRun {
		return http.StatusCreated, success(http.StatusCreated), err
	}
	if err := r.disrupt(pod); err != nil {
		return 0, nil, err
	}
	options.Preconditions = &metav1.Preconditions{UID: &pod.UID} // the resource version has moved on
	if _, _, err = r.api.remove(r.kind, r.key(), &options, false); err == nil {
		err = r.api.computeBudgets(pod.Namespace)
	}
	return http.StatusCreated, success(http.StatusCreated), err
}

// disrupt sets the condition DisruptionTarget of a pod.
func (r *request) disrupt(pod *v1.Pod) error {
	_, err := r.api.update(r.Context(), change{kind: r.kind, key: r.key(), internal: true, next: func(old store.Object) (store.Object, error) {
		marked := old.(*v1.Pod).DeepCopy()
		marked.UID = pod.UID
		setCondition(marked, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"})
		return marked, nil
	}})
	return err
}

// allowed says whether a pod's budget permits its eviction. The caller holds the lock
// of the budgets.
func (a *API) allowed(pod *v1.Pod) error {
	switch pod.Status.Phase {
	case v1.PodSucceeded, v1.PodFailed, v1.PodPending:
		return nil
	}
	if pod.DeletionTimestamp != nil {
		return nil
	}
	budgets := a.budgetsOf(pod)
	if len(budgets) == 0 {
		return nil
	}
	if len(budgets) > 1 {
		return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
	}
	budget, status := budgets[0], a.budgetStatus(budgets[0])
	if status.DisruptionsAllowed > 0 || !ready(pod) && sparesUnready(budget, status) {
		return nil
	}
	why := fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, status.DesiredHealthy, status.CurrentHealthy)
	if c := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition); c != nil && c.Reason == policyv1.SyncFailedReason {
		why = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %v", budget.Name, c.Message)
	}
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: why}}
	return err
}

// sparesUnready says whether an unready pod may be evicted whatever the budget allows.
func sparesUnready(budget *policyv1.PodDisruptionBudget, status policyv1.PodDisruptionBudgetStatus) bool {
	if ptr.Deref(budget.Spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget) == policyv1.AlwaysAllow {
		return true
	}
	return status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0
}

func ready(pod *v1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
