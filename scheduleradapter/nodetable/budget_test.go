package nodetable

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func newBudget(namespace, name, app string) *Budget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	return NewBudget(b)
}

// TestBudgetsOfAPodAreFoundWithoutTheOthers: the number of selectors that are matched does not
// grow with the number of budgets.
func TestBudgetsOfAPodAreFoundWithoutTheOthers(t *testing.T) {
	table := New()
	for i := range 10_000 {
		table.SetBudget(newBudget("shop", fmt.Sprint("b", i), fmt.Sprint("app-", i)))
	}
	table.SetBudget(newBudget("shop", "second", "app-7"))
	table.SetBudget(newBudget("other", "b7", "app-7"))
	p := NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", UID: types.UID("p"), Labels: map[string]string{"app": "app-7", "tier": "web"}}})
	names := func() (found []string) {
		table.Budgets(p, func(b *Budget) { found = append(found, b.Object.Name) })
		return found
	}
	equal(t, "budgets", names(), []string{"b7", "second"})
	equal(t, "matched selectors", table.matched, 2)
	table.SetBudget(newBudget("shop", "b7", "app-8"))
	equal(t, "budgets after an update", names(), []string{"second"})
	table.RemoveBudget("shop", "second")
	equal(t, "budgets after a deletion", names(), []string{})
	table.RemoveBudget("other", "b7")
	if table.RemoveBudget("none", "b7"); len(table.budgets) != 1 {
		t.Errorf("%d namespaces have budgets", len(table.budgets))
	}
}
