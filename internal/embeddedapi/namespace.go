package embeddedapi

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// systemNamespaces exist from the start and cannot be deleted.
var systemNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, v1.NamespaceNodeLease}

func isSystem(name string) bool { return slices.Contains(systemNamespaces, name) }

// namespace returns the namespace of a name.
func (a *API) namespace(name string) (*v1.Namespace, error) {
	namespaces := a.kindOf("Namespace")
	if found, is := namespaces.table.Get(store.Key{Name: name}).(*v1.Namespace); is {
		return found.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(namespaces.groupResource(), name)
}

// checkNamespace refuses objects in namespaces that do not exist or are being deleted.
func (a *API) checkNamespace(k *kind, object store.Object) error {
	if !k.namespaced {
		return nil
	}
	name, namespaces := object.GetNamespace(), a.kindOf("Namespace")
	namespace := namespaces.table.Get(store.Key{Name: name})
	if namespace == nil {
		return apierrors.NewNotFound(namespaces.groupResource(), name)
	}
	if namespace.GetDeletionTimestamp() == nil {
		return nil
	}
	err := apierrors.NewForbidden(k.groupResource(), object.GetName(), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", name))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: v1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", name), Field: "metadata.namespace"})
	return err
}

// empty deletes the content of a namespace, and the namespace once it is empty. Its pods are deleted
// first: until they are gone, what they use is there.
func (a *API) empty(name string) error {
	pods := a.kindOf("Pod")
	faults := []error{a.emptyOf(name, []*kind{pods})}
	if !pods.table.Holds(name) {
		faults = append(faults, a.emptyOf(name, a.kinds), a.finishNamespace(name))
	}
	err := errors.Join(faults...)
	return errors.Join(err, a.reportRest(name, err))
}

// emptyOf deletes the objects of kinds in a namespace.
func (a *API) emptyOf(name string, kinds []*kind) error {
	var faults []error
	for _, k := range kinds {
		if !k.namespaced || k.isView() {
			continue
		}
		objects, _ := k.table.List(name)
		for _, o := range objects {
			_, _, err := a.remove(k, store.KeyOf(o), &metav1.DeleteOptions{}, false)
			if !apierrors.IsNotFound(err) {
				faults = append(faults, err)
			}
		}
	}
	return errors.Join(faults...)
}

// isTerminating says that a namespace is being deleted.
func (a *API) isTerminating(name string) bool {
	namespace := a.kindOf("Namespace").table.Get(store.Key{Name: name})
	return namespace != nil && namespace.GetDeletionTimestamp() != nil
}

// finishNamespace removes a namespace that is being deleted once it is empty.
func (a *API) finishNamespace(name string) error {
	namespaces := a.kindOf("Namespace")
	for {
		namespace := namespaces.table.Get(store.Key{Name: name})
		if namespace == nil || namespace.GetDeletionTimestamp() == nil || len(namespace.GetFinalizers()) > 0 {
			return nil
		}
		for _, k := range a.kinds {
			if k.namespaced && k.table.Holds(name) {
				return nil
			}
		}
		if _, err := namespaces.table.Remove(namespace); !errors.Is(err, store.ErrChanged) {
			return err
		}
	}
}
