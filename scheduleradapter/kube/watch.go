package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
)

// Watch passes informer events to a loop. Invalid objects are logged once and left
// out.
type Watch struct {
	loop    *cycle.Loop
	storage *volumes.Storage
	log     *slog.Logger
	synced  []cache.InformerSynced
	mu      sync.Mutex
	odd     map[types.UID]bool // left out
}

// NewWatch registers with the informers of a factory, which the caller starts
// later.
func NewWatch(factory informers.SharedInformerFactory, l *cycle.Loop, storage *volumes.Storage, api *Volumes, log *slog.Logger) (*Watch, error) {
	w := &Watch{loop: l, storage: storage, log: log, odd: map[types.UID]bool{}}
	w.synced = append(w.synced, factory.Policy().V1().PodDisruptionBudgets().Informer().HasSynced)
	return w, errors.Join(w.watchNodesAndPods(factory), w.watchGroups(factory), w.watchStorage(factory, api))
}

// Synced waits until the loop has the initial lists; false: the context has ended.
func (w *Watch) Synced(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.synced...)
}

// Ready reports whether the loop has the initial lists.
func (w *Watch) Ready() bool {
	for _, synced := range w.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// object is a pointer to an API object.
type object interface {
	comparable
	metav1.Object
}

// on calls a function for each event of a kind: the old object is nil after an
// addition, the new one after a deletion.
func on[T object](w *Watch, informer cache.SharedIndexInformer, changed func(was, is T)) error {
	var none T
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(is any) { changed(none, is.(T)) },
		UpdateFunc: func(was, is any) {
			if was.(T).GetUID() != is.(T).GetUID() { // the deletion was missed
				changed(was.(T), none)
				was = none
			}
			changed(was.(T), is.(T))
		},
		DeleteFunc: func(was any) {
			if missed, is := was.(cache.DeletedFinalStateUnknown); is {
				was = missed.Obj
			}
			changed(was.(T), none)
		},
	})
	if err == nil {
		w.synced = append(w.synced, handler.HasSynced)
	}
	return err
}

func (w *Watch) watchNodesAndPods(factory informers.SharedInformerFactory) error {
	core := factory.Core().V1()
	return errors.Join(
		on(w, core.Nodes().Informer(), func(was, is *v1.Node) {
			if is == nil {
				w.loop.Do(func() { w.loop.RemoveNode(was.Name) })
				return
			}
			node := nodetable.NewNode(is)
			w.loop.Do(func() { w.loop.SetNode(node) })
		}),
		on(w, core.Pods().Informer(), w.pod),
		on(w, core.Namespaces().Informer(), func(was, is *v1.Namespace) {
			if is == nil {
				is = &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: was.Name}}
			}
			labels := nodetable.NewLabels(is.Labels)
			w.loop.Do(func() { w.loop.Table.SetNamespace(is.Name, labels) })
		}),
	)
}

// pod handles an event of a pod; completed pods are removed.
func (w *Watch) pod(was, is *v1.Pod) {
	gone := is == nil || is.Status.Phase == v1.PodSucceeded || is.Status.Phase == v1.PodFailed
	if is == nil {
		is = was
	}
	pod, err := nodetable.NewPod(is)
	switch {
	case w.left(is, gone, err):
	case gone:
		w.loop.Do(func() { w.loop.RemovePod(pod) })
	default:
		w.loop.Do(func() { w.loop.SetPod(pod) })
	}
}

// left reports whether an object is left out because of an error, and logs the
// first.
func (w *Watch) left(o metav1.Object, gone bool, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	reported := w.odd[o.GetUID()]
	switch {
	case gone || err == nil:
		delete(w.odd, o.GetUID())
	case !reported:
		w.odd[o.GetUID()] = true
		w.log.Warn("invalid object is ignored", "error", err)
	}
	return err != nil
}

// Pressure also watches the Leases of evictd and evicted pods. The caller starts
// the factory later.
func (w *Watch) Pressure(factory informers.SharedInformerFactory) error {
	return errors.Join(w.watchHeadroom(factory), on(w, factory.Core().V1().Pods().Informer(), func(_, is *v1.Pod) {
		if is == nil {
			return
		}
		if node, eviction, ok := nodetable.NewEviction(is); ok {
			w.loop.Do(func() { w.loop.Table.AddEviction(nodetable.Intern(node), eviction) })
		}
	}))
}

func (w *Watch) watchHeadroom(factory informers.SharedInformerFactory) error {
	return on(w, factory.Coordination().V1().Leases().Informer(), func(was, is *coordinationv1.Lease) {
		lease := is
		if is == nil {
			lease = was
		}
		node, headroom, err := nodetable.NewHeadroom(lease)
		if w.left(lease, is == nil, err) || is == nil {
			headroom = nil
		}
		if node != "" {
			w.loop.Do(func() { w.loop.SetHeadroom(node, headroom) })
		}
	})
}

func (w *Watch) watchGroups(factory informers.SharedInformerFactory) error {
	core, apps := factory.Core().V1(), factory.Apps().V1()
	return errors.Join(
		on(w, core.Services().Informer(), group(w, "v1", "Service", func(s *v1.Service) *metav1.LabelSelector { return matching(s.Spec.Selector) })),
		on(w, core.ReplicationControllers().Informer(), group(w, "v1", "ReplicationController", func(c *v1.ReplicationController) *metav1.LabelSelector {
			return matching(c.Spec.Selector)
		})),
		on(w, apps.ReplicaSets().Informer(), group(w, "apps/v1", "ReplicaSet", func(s *appsv1.ReplicaSet) *metav1.LabelSelector { return s.Spec.Selector })),
		on(w, apps.StatefulSets().Informer(), group(w, "apps/v1", "StatefulSet", func(s *appsv1.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector })),
	)
}

// group handles events of the objects whose selectors group pods.
func group[T object](w *Watch, apiVersion, kind string, selects func(T) *metav1.LabelSelector) func(was, is T) {
	var none T
	return func(was, is T) {
		var selector *metav1.LabelSelector
		if is != none {
			was, selector = is, selects(is)
		}
		g := nodetable.Group{APIVersion: apiVersion, Kind: kind, Name: was.GetName()}
		w.loop.Do(func() { w.left(was, is == none, w.loop.Table.SetGroup(was.GetNamespace(), g, selector)) })
	}
}

// matching is a selector by labels; nil: there are none.
func matching(labels map[string]string) *metav1.LabelSelector {
	if len(labels) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: labels}
}

func (w *Watch) watchStorage(factory informers.SharedInformerFactory, api *Volumes) error {
	s, core, all := w.storage, factory.Core().V1(), factory.Storage().V1()
	never := func(set func()) error { set(); return nil }
	return errors.Join(
		on(w, core.PersistentVolumes().Informer(), stored(w, framework.PersistentVolume, func(o *v1.PersistentVolume) error {
			defer api.told()
			return s.SetVolume(o)
		}, func(o *v1.PersistentVolume) { s.RemoveVolume(o.Name); api.told() })),
		on(w, core.PersistentVolumeClaims().Informer(), stored(w, framework.PersistentVolumeClaim, func(o *v1.PersistentVolumeClaim) error {
			defer api.told()
			return never(func() { s.SetClaim(o) })
		}, func(o *v1.PersistentVolumeClaim) { s.RemoveClaim(o.Namespace, o.Name); api.told() })),
		on(w, all.StorageClasses().Informer(), stored(w, framework.StorageClass, s.SetClass, func(o *storagev1.StorageClass) { s.RemoveClass(o.Name) })),
		on(w, all.CSINodes().Informer(), stored(w, framework.CSINode, func(o *storagev1.CSINode) error {
			return never(func() { s.SetNode(o) })
		}, func(o *storagev1.CSINode) { s.RemoveNode(o.Name) })),
		on(w, all.CSIDrivers().Informer(), stored(w, framework.CSIDriver, func(o *storagev1.CSIDriver) error {
			return never(func() { s.SetDriver(o) })
		}, func(o *storagev1.CSIDriver) { s.RemoveDriver(o.Name) })),
		on(w, all.CSIStorageCapacities().Informer(), stored(w, framework.CSIStorageCapacity, s.SetCapacity, func(o *storagev1.CSIStorageCapacity) {
			s.RemoveCapacity(o.Namespace, o.Name)
		})),
		on(w, all.VolumeAttachments().Informer(), stored(w, framework.VolumeAttachment, func(o *storagev1.VolumeAttachment) error {
			return never(func() { s.SetAttachment(o) })
		}, func(o *storagev1.VolumeAttachment) { s.RemoveAttachment(o.Name) })),
	)
}

// stored handles events of storage objects, and calls the queueing hints.
func stored[T object](w *Watch, resource framework.Resource, set func(T) error, remove func(T)) func(was, is T) {
	var none T
	return func(was, is T) {
		w.loop.Do(func() {
			var old, new any
			if was != none {
				old = was
			}
			if is == none {
				remove(was)
				w.left(was, true, nil)
			} else {
				new = is
				w.left(is, false, set(is))
			}
			w.loop.ObjectChanged(resource, old, new)
		})
	}
}
