package embeddedapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

var deleteOptionsKind = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}

// deleteOptions are those of the body, else those of the query. A dry run may be asked for
// in either.
func (r *request) deleteOptions() (*metav1.DeleteOptions, error) {
	options, asked := &metav1.DeleteOptions{}, &metav1.DeleteOptions{}
	if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&r.query, asked, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	data, err := r.body()
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return asked, checkDeleteOptions(asked)
	}
	if err := r.decode(data, r.Header.Get("Content-Type"), options, deleteOptionsKind); err != nil {
		return nil, err
	}
	options.DryRun = append(options.DryRun, asked.DryRun...)
	return options, checkDeleteOptions(options)
}

func checkDeleteOptions(options *metav1.DeleteOptions) error {
	return wrongOptions("DeleteOptions", metav1validation.ValidateDeleteOptions(options))
}

func wrongOptions(kind string, faults utilvalidation.ErrorList) error {
	if len(faults) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", faults)
}

func (r *request) delete() (int, runtime.Object, error) {
	options, err := r.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	object, gone, err := r.api.remove(r.kind, r.key(), options, len(options.DryRun) > 0)
	if err != nil || !gone || r.kind.answers {
		return http.StatusOK, object, err
	}
	return http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: object.GetName(), Group: r.kind.Group, Kind: r.kind.resource, UID: object.GetUID()},
	}, nil
}

// deleteAll deletes everything that the selectors match and answers with what was there.
func (r *request) deleteAll() (int, runtime.Object, error) {
	filter, err := newFilter(r, r.query)
	if err != nil {
		return 0, nil, err
	}
	options, err := r.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	objects, revision := r.kind.table.List(r.namespace)
	items := []runtime.Object{}
	for _, o := range objects {
		if !filter.matches(o) {
			continue
		}
		_, _, err := r.api.remove(r.kind, store.KeyOf(o), options, len(options.DryRun) > 0)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		items = append(items, r.kind.served(o))
	}
	list, err := r.api.listOf(r.kind, items, metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)})
	return http.StatusOK, list, err
}

// remove deletes an object, or marks it as deleted while a finalizer, the agent of a
// pod's node or the content of a namespace keeps it. It returns the object as marked,
// or its last state.
func (a *API) remove(k *kind, key store.Key, options *metav1.DeleteOptions, dryRun bool) (object store.Object, gone bool, err error) {
	for {
		object, gone, err = a.tryRemove(k, key, options, dryRun)
		if !errors.Is(err, store.ErrChanged) {
			return object, gone, err
		}
	}
}

// tryRemove is one attempt; the error is store.ErrChanged where the object changed meanwhile.
func (a *API) tryRemove(k *kind, key store.Key, options *metav1.DeleteOptions, dryRun bool) (object store.Object, gone bool, err error) {
	old := k.table.Get(key)
	if old == nil {
		return nil, false, apierrors.NewNotFound(k.groupResource(), key.Name)
	}
	if err := checkPreconditions(k, old, options.Preconditions); err != nil {
		return nil, false, err
	}
	if k.Kind == "Namespace" && isSystem(key.Name) {
		return nil, false, apierrors.NewForbidden(k.groupResource(), key.Name, errors.New("this namespace may not be deleted"))
	}
	grace, finalizers := gracePeriod(old, options), finalizersFor(old, k.strategy.Orphans(old), options)
	if grace == 0 && len(finalizers) == 0 && k.Kind != "Namespace" {
		if dryRun {
			return old, true, nil
		}
		object, err = a.removeObject(k, old)
		return object, true, err
	}
	object = terminating(old, grace, finalizers)
	if dryRun {
		return object, false, nil
	}
	if object != old {
		if err := k.table.Put(old, object); err != nil {
			return nil, false, err
		}
	}
	if k.Kind == "Namespace" {
		return object, false, a.empty(key.Name)
	}
	return object, false, a.handleDependents(k, object)
}

// removeObject removes an object, with the last object of a namespace that is being
// deleted the namespace, and with the last dependent of an owner that waits for it the owner.
func (a *API) removeObject(k *kind, old store.Object) (store.Object, error) {
	last, err := k.table.Remove(old)
	if err != nil {
		return nil, err
	}
	switch {
	case k.Kind == "Pod" && a.isTerminating(old.GetNamespace()):
		err = a.empty(old.GetNamespace())
	case k.namespaced:
		err = a.finishNamespace(old.GetNamespace())
	}
	return last, errors.Join(err, a.finishOwners(old))
}

func checkPreconditions(k *kind, o store.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != o.GetUID() {
		return conflict(schema.GroupResource{Group: k.Group, Resource: k.Kind}, o, unlike("UID", *p.UID, o.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
		return conflict(schema.GroupResource{Group: k.Group, Resource: k.Kind}, o, unlike("ResourceVersion", *p.ResourceVersion, o.GetResourceVersion()))
	}
	return nil
}

// gracePeriod is how long an object may take to go, in seconds: only a pod that
// runs somewhere takes any.
func gracePeriod(o store.Object, options *metav1.DeleteOptions) int64 {
	pod, isPod := o.(*v1.Pod)
	if !isPod || pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return 0
	}
	grace := ptr.Deref(options.GracePeriodSeconds, ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds))
	if grace < 0 {
		return 1
	}
	return grace
}

// terminating marks an object as being deleted. For an object already marked, the grace
// period may be shortened, never extended. It returns old where nothing changes.
func terminating(old store.Object, grace int64, finalizers []string) store.Object {
	marked := old.GetDeletionTimestamp() != nil && ptr.Deref(old.GetDeletionGracePeriodSeconds(), 0) <= grace
	if marked && slices.Equal(old.GetFinalizers(), finalizers) {
		return old
	}
	object := old.DeepCopyObject().(store.Object)
	object.SetFinalizers(finalizers)
	if marked {
		return object
	}
	at := time.Now().Truncate(time.Second).Add(time.Duration(grace) * time.Second)
	object.SetDeletionTimestamp(&metav1.Time{Time: at})
	object.SetDeletionGracePeriodSeconds(&grace)
	if object.GetGeneration() > 0 && old.GetDeletionTimestamp() == nil {
		object.SetGeneration(object.GetGeneration() + 1)
	}
	if namespace, ok := object.(*v1.Namespace); ok {
		namespace.Status.Phase = v1.NamespaceTerminating
	}
	return object
}
