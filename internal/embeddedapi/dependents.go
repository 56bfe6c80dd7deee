package embeddedapi

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// finalizersFor are an object's finalizers once it is deleted with options, as
// deletionFinalizersForGarbageCollection of Kubernetes' generic registry computes them. orphans is the
// policy of the kind where neither the options nor the object's finalizers name another.
func finalizersFor(o store.Object, orphans bool, options *metav1.DeleteOptions) []string {
	policy, has := metav1.DeletePropagationBackground, o.GetFinalizers()
	orphan := options.OrphanDependents //lint:ignore SA1019 clients still send it
	switch {
	case orphan != nil && *orphan:
		policy = metav1.DeletePropagationOrphan
	case orphan != nil:
	case options.PropagationPolicy != nil:
		policy = *options.PropagationPolicy
	case slices.Contains(has, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(has, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	case orphans:
		policy = metav1.DeletePropagationOrphan
	}
	wanted := map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationOrphan: metav1.FinalizerOrphanDependents, metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents}[policy]
	finalizers := slices.DeleteFunc(slices.Clone(has), func(name string) bool {
		return name != wanted && (name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents)
	})
	if wanted != "" && !slices.Contains(finalizers, wanted) {
		finalizers = append(finalizers, wanted)
	}
	return finalizers
}

// handleDependents does what the garbage collector of kube-controller-manager does for an owner that
// is being deleted: it orphans the dependents, or deletes them and waits for those that block the
// owner's deletion. What is deleted in the background is left to kube-controller-manager.
func (a *API) handleDependents(k *kind, owner store.Object) error {
	done, finalizers := "", owner.GetFinalizers()
	switch {
	case owner.GetDeletionTimestamp() == nil:
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		for _, d := range a.dependents(k, owner) {
			if err := a.disown(d, owner); err != nil {
				return err
			}
		}
		done = metav1.FinalizerOrphanDependents
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		if err := a.deleteBlocking(k, owner); err != nil {
			return err
		}
		if !slices.ContainsFunc(a.dependents(k, owner), func(d dependent) bool { return d.blocks(owner) && !a.waits(d.object, owner, nil) }) {
			done = metav1.FinalizerDeleteDependents
		}
	}
	if done == "" {
		return nil
	}
	_, err := a.update(context.Background(), change{kind: k, key: store.KeyOf(owner), internal: true, next: func(old store.Object) (store.Object, error) {
		object := old.DeepCopyObject().(store.Object)
		object.SetFinalizers(slices.DeleteFunc(slices.Clone(old.GetFinalizers()), func(name string) bool { return name == done }))
		object.SetUID(owner.GetUID())
		return object, nil
	}})
	return ignoreReplaced(err)
}

// waits says that an object is an owner of another, or an owner of its owners, and that each of them waits for
// its dependents to be deleted: owners in a circle would wait for ever.
func (a *API) waits(object, dependent store.Object, seen []types.UID) bool {
	if slices.Contains(seen, dependent.GetUID()) {
		return false
	}
	seen = append(seen, dependent.GetUID())
	return slices.ContainsFunc(dependent.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		_, owner := a.owner(ref, dependent.GetNamespace())
		return owner != nil && !a.keeps(ref, dependent.GetNamespace()) && (owner.GetUID() == object.GetUID() || a.waits(object, owner, seen))
	})
}

// ignoreReplaced is nil where an object is gone, or another one has its name.
func ignoreReplaced(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// dependent is an object that names an owner.
type dependent struct {
	kind   *kind
	object store.Object
}

func (d dependent) blocks(owner store.Object) bool {
	return slices.ContainsFunc(d.object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID == owner.GetUID() && ptr.Deref(ref.BlockOwnerDeletion, false)
	})
}

// dependents are the objects that name an owner: in its namespace, or anywhere for an
// owner without.
func (a *API) dependents(k *kind, owner store.Object) (found []dependent) {
	for _, of := range a.kinds {
		if of.isView() || k.namespaced && !of.namespaced {
			continue
		}
		objects, _ := of.table.List(owner.GetNamespace())
		for _, o := range objects {
			if slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() }) {
				found = append(found, dependent{of, o})
			}
		}
	}
	return found
}

// disown removes an owner from a dependent.
func (a *API) disown(d dependent, owner store.Object) error {
	_, err := a.update(context.Background(), change{kind: d.kind, key: store.KeyOf(d.object), internal: true, next: func(old store.Object) (store.Object, error) {
		object := old.DeepCopyObject().(store.Object)
		object.SetUID(d.object.GetUID())
		object.SetOwnerReferences(slices.DeleteFunc(slices.Clone(old.GetOwnerReferences()), func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() }))
		return object, nil
	}})
	return ignoreReplaced(err)
}

// deleteBlocking deletes the dependents that block the deletion of their owner, and theirs first.
// A dependent with another owner loses this one.
func (a *API) deleteBlocking(k *kind, owner store.Object) error {
	var faults []error
	for _, d := range a.dependents(k, owner) {
		switch {
		case !d.blocks(owner):
		case slices.ContainsFunc(d.object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
			return ref.UID != owner.GetUID() && a.keeps(ref, d.object.GetNamespace())
		}):
			faults = append(faults, a.disown(d, owner))
		case d.object.GetDeletionTimestamp() == nil:
			uid, policy := d.object.GetUID(), metav1.DeletePropagationForeground
			_, _, err := a.remove(d.kind, store.KeyOf(d.object), &metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}}, false)
			faults = append(faults, ignoreReplaced(err))
		}
	}
	return errors.Join(faults...)
}

// owner finds the object of a reference; nil where it is gone.
func (a *API) owner(ref metav1.OwnerReference, namespace string) (*kind, store.Object) {
	k := a.kindOf(ref.Kind)
	if k == nil || k.GroupVersion().String() != ref.APIVersion {
		return nil, nil
	}
	if !k.namespaced {
		namespace = ""
	}
	o := k.table.Get(store.Key{Namespace: namespace, Name: ref.Name})
	if o == nil || o.GetUID() != ref.UID {
		return nil, nil
	}
	return k, o
}

// keeps says that an owner is there and does not wait for its dependents to be deleted.
func (a *API) keeps(ref metav1.OwnerReference, namespace string) bool {
	_, o := a.owner(ref, namespace)
	return o != nil && (o.GetDeletionTimestamp() == nil || !slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents))
}

// finishOwners continues the deletion of the owners that wait for an object that is now gone.
func (a *API) finishOwners(gone store.Object) error {
	var faults []error
	for _, ref := range gone.GetOwnerReferences() {
		if k, o := a.owner(ref, gone.GetNamespace()); o != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			faults = append(faults, a.handleDependents(k, o))
		}
	}
	return errors.Join(faults...)
}

// resume continues the deletions that the end of an earlier process has interrupted.
func (a *API) resume() error {
	var faults []error
	for _, k := range a.kinds {
		if k.isView() {
			continue
		}
		objects, _ := k.table.List("")
		for _, o := range objects {
			switch {
			case o.GetDeletionTimestamp() == nil:
			case k.Kind == "Namespace":
				faults = append(faults, a.empty(o.GetName()))
			default:
				faults = append(faults, a.handleDependents(k, o))
			}
		}
	}
	return errors.Join(faults...)
}
