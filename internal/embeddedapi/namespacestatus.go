package embeddedapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// reportRest says in the conditions of a namespace that is being deleted what is left of its content,
// as the namespace controller of Kubernetes does. Failed is why content was not deleted, or nil.
func (a *API) reportRest(name string, failed error) error {
	k, conditions := a.kindOf("Namespace"), a.restOf(name, failed)
	_, err := a.update(context.Background(), change{kind: k, key: store.Key{Name: name}, internal: true, next: func(old store.Object) (store.Object, error) {
		next := old.(*v1.Namespace).DeepCopy()
		for _, c := range conditions {
			i := slices.IndexFunc(next.Status.Conditions, func(has v1.NamespaceCondition) bool { return has.Type == c.Type })
			if i < 0 {
				next.Status.Conditions = append(next.Status.Conditions, c)
				continue
			}
			if has := next.Status.Conditions[i]; has.Status == c.Status && has.Reason == c.Reason && has.Message == c.Message {
				c.LastTransitionTime = has.LastTransitionTime
			}
			next.Status.Conditions[i] = c
		}
		return next, nil
	}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// restOf are the conditions by what is left in a namespace.
func (a *API) restOf(name string, failed error) []v1.NamespaceCondition {
	var left, held []string
	finalizers := map[string]int{}
	for _, k := range a.kinds {
		if !k.namespaced || k.isView() {
			continue
		}
		objects, _ := k.table.List(name)
		if len(objects) > 0 {
			left = append(left, fmt.Sprintf("%s.%s has %d resource instances", k.resource, k.Group, len(objects)))
		}
		for _, o := range objects {
			for _, finalizer := range o.GetFinalizers() {
				finalizers[finalizer]++
			}
		}
	}
	slices.Sort(left)
	for _, finalizer := range slices.Sorted(maps.Keys(finalizers)) {
		held = append(held, fmt.Sprintf("%s in %d resource instances", finalizer, finalizers[finalizer]))
	}
	condition := func(of v1.NamespaceConditionType, holds bool, reason, message string) v1.NamespaceCondition {
		status := v1.ConditionFalse
		if holds {
			status = v1.ConditionTrue
		}
		return v1.NamespaceCondition{Type: of, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	}
	content := condition(v1.NamespaceDeletionContentFailure, false, "ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	if failed != nil {
		content = condition(v1.NamespaceDeletionContentFailure, true, "ContentDeletionFailed", failed.Error())
	}
	remaining := condition(v1.NamespaceContentRemaining, false, "ContentRemoved", "All content successfully removed")
	if len(left) > 0 {
		remaining = condition(v1.NamespaceContentRemaining, true, "SomeResourcesRemain", "Some resources are remaining: "+strings.Join(left, ", "))
	}
	holding := condition(v1.NamespaceFinalizersRemaining, false, "ContentHasNoFinalizers", "All content-preserving finalizers finished")
	if len(held) > 0 {
		holding = condition(v1.NamespaceFinalizersRemaining, true, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+strings.Join(held, ", "))
	}
	return []v1.NamespaceCondition{
		condition(v1.NamespaceDeletionDiscoveryFailure, false, "ResourcesDiscovered", "All resources successfully discovered"),
		condition(v1.NamespaceDeletionGVParsingFailure, false, "ParsedGroupVersions", "All legacy kube types successfully parsed"),
		content, remaining, holding,
	}
}
