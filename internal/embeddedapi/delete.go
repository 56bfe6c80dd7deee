package embeddedapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

var deleteOptionsKind = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}

// deleteOptions are those of the body and the query.
func (r *request) deleteOptions() (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	data, err := r.body()
	if err == nil && len(data) > 0 {
		err = r.decode(data, r.Header.Get("Content-Type"), options, deleteOptionsKind)
	}
	if err != nil {
		return nil, err
	}
	if text := r.query.Get("gracePeriodSeconds"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("gracePeriodSeconds: expected a number, found %q", text))
		}
		options.GracePeriodSeconds = &seconds
	}
	if r.dryRun() {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return options, nil
}

func (r *request) delete() (int, runtime.Object, error) {
	options, err := r.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	object, gone, err := r.api.remove(r.kind, r.key(), options, len(options.DryRun) > 0)
	if err != nil || !gone || r.kind.Kind == "Pod" {
		return http.StatusOK, object, err
	}
	return http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: object.GetName(), Group: r.kind.Group, Kind: r.kind.resource, UID: object.GetUID()},
	}, nil
}

// deleteAll deletes everything that the selectors match and answers with it.
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
		object, _, err := r.api.remove(r.kind, store.KeyOf(o), options, len(options.DryRun) > 0)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		items = append(items, r.kind.served(object))
	}
	list, err := r.api.listOf(r.kind, items, revision)
	return http.StatusOK, list, err
}

// remove deletes an object, or marks it as deleted while a finalizer, the agent of a
// pod's node or the content of a namespace keeps it. It returns the object as marked,
// or its last state.
func (a *API) remove(k *kind, key store.Key, options *metav1.DeleteOptions, dryRun bool) (object store.Object, gone bool, err error) {
	for {
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
		grace := gracePeriod(old, options)
		gone := grace == 0 && len(old.GetFinalizers()) == 0 && k.Kind != "Namespace"
		switch {
		case dryRun:
			return old, gone, nil
		case gone:
			object, err = a.removeObject(k, old)
		default:
			if object = terminating(old, grace); object != old {
				err = k.table.Put(old, object)
			}
		}
		if errors.Is(err, store.ErrChanged) {
			continue
		}
		if err == nil && k.Kind == "Namespace" {
			err = a.empty(key.Name)
		}
		return object, gone, err
	}
}

// removeObject removes an object, and with the last object of a namespace that is being
// deleted the namespace.
func (a *API) removeObject(k *kind, old store.Object) (store.Object, error) {
	last, err := k.table.Remove(old)
	if err == nil && k.namespaced {
		err = a.finishNamespace(old.GetNamespace())
	}
	return last, err
}

func checkPreconditions(k *kind, o store.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != o.GetUID() {
		return conflict(k.groupResource(), o, unlike("UID", *p.UID, o.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
		return conflict(k.groupResource(), o, unlike("ResourceVersion", *p.ResourceVersion, o.GetResourceVersion()))
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
// period may be shortened, never extended.
func terminating(old store.Object, grace int64) store.Object {
	at := time.Now().Truncate(time.Second).Add(time.Duration(grace) * time.Second)
	if has := old.GetDeletionTimestamp(); has != nil && ptr.Deref(old.GetDeletionGracePeriodSeconds(), 0) <= grace {
		return old
	}
	object := old.DeepCopyObject().(store.Object)
	object.SetDeletionTimestamp(&metav1.Time{Time: at})
	object.SetDeletionGracePeriodSeconds(&grace)
	if object.GetGeneration() > 0 {
		object.SetGeneration(object.GetGeneration() + 1)
	}
	if namespace, ok := object.(*v1.Namespace); ok {
		namespace.Status.Phase = v1.NamespaceTerminating
	}
	return object
}
