package nodetable

import policyv1 "k8s.io/api/policy/v1"

// Budget is the immutable digest of a PodDisruptionBudget.
type Budget struct {
	Object   *policyv1.PodDisruptionBudget
	selector *Selector
}

// NewBudget digests a budget. Any goroutine may call it.
func NewBudget(object *policyv1.PodDisruptionBudget) *Budget {
	return &Budget{object, NewSelector(object.Spec.Selector)}
}

// budgets are those of a namespace.
type budgets struct {
	byName map[string]*Budget
	index  Index[*Budget]
}

// SetBudget adds or updates a PodDisruptionBudget.
func (t *Table) SetBudget(b *Budget) {
	t.RemoveBudget(b.Object.Namespace, b.Object.Name)
	in := t.budgets[Intern(b.Object.Namespace)]
	if in == nil {
		in = &budgets{byName: map[string]*Budget{}}
		t.budgets[Intern(b.Object.Namespace)] = in
	}
	in.byName[b.Object.Name] = b
	in.index.Add(b.selector, b)
}

func (t *Table) RemoveBudget(namespace, name string) {
	in := t.budgets[Intern(namespace)]
	if in == nil || in.byName[name] == nil {
		return
	}
	in.index.Remove(in.byName[name].selector, in.byName[name])
	if delete(in.byName, name); len(in.byName) == 0 {
		delete(t.budgets, Intern(namespace))
	}
}

// HasBudgets reports whether there are budgets.
func (t *Table) HasBudgets() bool { return len(t.budgets) > 0 }

// Budgets calls a function for each budget that selects a pod: an empty selector selects
// all, also without labels, and one that is missing or does not parse none. Source:
// getPodDisruptionBudgets of the Eviction API.
func (t *Table) Budgets(p *Pod, visit func(*Budget)) {
	in := t.budgets[p.Namespace]
	if in == nil {
		return
	}
	in.index.Candidates(p.Labels, func(b *Budget) {
		if t.matched++; b.selector.Matches(p.Labels) {
			visit(b)
		}
	})
}
