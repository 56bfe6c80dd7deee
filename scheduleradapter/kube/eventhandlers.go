package kube

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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

// Watch passes informer events to a loop. An invalid headroom is logged once and
// left out.
type Watch struct {
	loop    *cycle.Loop
	storage *volumes.Storage
	log     *slog.Logger

	templates *nodetable.Templates

	mu      sync.Mutex
	synced  []cache.InformerSynced
	invalid map[types.UID]bool // left out
}

// NewWatch registers with the informers of a factory, which the caller starts
// later.
func NewWatch(factory informers.SharedInformerFactory, l *cycle.Loop, storage *volumes.Storage, api *Volumes, log *slog.Logger) (*Watch, error) {
	w := &Watch{loop: l, storage: storage, log: log, templates: nodetable.NewTemplates(), invalid: map[types.UID]bool{}}
	return w, errors.Join(w.watchNodesAndPods(factory), w.watchGroups(factory), w.watchStorage(factory, api))
}

// Synced waits until the loop has the initial lists; false: the context has ended.
func (w *Watch) Synced(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.lists()...)
}

// Ready reports whether the loop has the initial lists.
func (w *Watch) Ready() bool {
	for _, synced := range w.lists() {
		if !synced() {
			return false
		}
	}
	return true
}

func (w *Watch) lists() []cache.InformerSynced {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.synced)
}

// object is a pointer to an API object, or the interface of all.
type object interface {
	comparable
	metav1.Object
}

// handle calls a function for each event of a kind: the old object is nil after an
// addition, the new one after a deletion.
func handle[T object](w *Watch, informer cache.SharedIndexInformer, changed func(old, obj T)) error {
	var none T
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { changed(none, obj.(T)) },
		UpdateFunc: func(old, obj any) {
			before, after := old.(T), obj.(T)
			if before.GetUID() != after.GetUID() { // the deletion was missed
				changed(before, none)
				before = none
			}
			changed(before, after)
		},
		DeleteFunc: func(old any) {
			if missed, is := old.(cache.DeletedFinalStateUnknown); is {
				old = missed.Obj
			}
			if before, known := old.(T); known {
				changed(before, none)
			}
		},
	})
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.synced = append(w.synced, handler.HasSynced)
	}
	return err
}

func (w *Watch) watchNodesAndPods(factory informers.SharedInformerFactory) error {
	core := factory.Core().V1()
	return errors.Join(
		handle(w, core.Nodes().Informer(), func(old, obj metav1.Object) {
			if obj == nil {
				w.loop.Do(func() { w.loop.RemoveNode(old.GetName()) })
				return
			}
			node := nodeDigest(obj)
			w.loop.Do(func() { w.loop.SetNode(node) })
		}),
		handle(w, core.Pods().Informer(), w.pod),
		handle(w, core.Namespaces().Informer(), func(old, obj *v1.Namespace) {
			if obj == nil {
				obj = &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: old.Name}}
			}
			labels := nodetable.NewLabels(obj.Labels)
			w.loop.Do(func() { w.loop.Table.SetNamespace(obj.Name, labels) })
		}),
		handle(w, factory.Policy().V1().PodDisruptionBudgets().Informer(), func(old, obj *policyv1.PodDisruptionBudget) {
			if obj == nil {
				w.loop.Do(func() { w.loop.Table.RemoveBudget(old.Namespace, old.Name) })
				return
			}
			budget := nodetable.NewBudget(obj)
			w.loop.Do(func() { w.loop.Table.SetBudget(budget) })
		}),
	)
}

// pod handles an event of a pod; completed pods are removed.
func (w *Watch) pod(old, obj metav1.Object) {
	deleted := obj == nil
	if deleted {
		obj = old
	}
	pod, here := podDigest(w.templates, obj)
	if deleted || !here {
		w.loop.Do(func() { w.loop.RemovePod(pod) })
		return
	}
	w.loop.Do(func() { w.loop.SetPod(pod) })
}

// ignored reports whether an object is left out because of an error, and logs the
// first.
func (w *Watch) ignored(o metav1.Object, deleted bool, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	reported := w.invalid[o.GetUID()]
	switch {
	case deleted || err == nil:
		delete(w.invalid, o.GetUID())
	case !reported:
		w.invalid[o.GetUID()] = true
		w.log.Warn("invalid object is ignored", "error", err)
	}
	return err != nil
}

// Pressure also watches the Leases of evictd and evicted pods. The caller starts
// the factory later.
func (w *Watch) Pressure(factory informers.SharedInformerFactory) error {
	return errors.Join(w.watchHeadroom(factory, w.loop.Do, w.loop.SetHeadroom), w.watchEvictions(factory, w.loop.Do, w.loop.Table))
}

// FeedPressure keeps the nodes, their headroom and their evictions in a table that
// another goroutine owns, to which do passes functions.
func (w *Watch) FeedPressure(nodes, factory informers.SharedInformerFactory, do func(func()), table *nodetable.Table) error {
	return errors.Join(
		handle(w, nodes.Core().V1().Nodes().Informer(), func(old, obj metav1.Object) {
			if obj == nil {
				do(func() { table.RemoveNode(nodetable.Intern(old.GetName())) })
				return
			}
			node := nodeDigest(obj)
			do(func() { table.SetNode(node) })
		}),
		w.watchHeadroom(factory, do, func(node string, h *nodetable.Headroom) { table.SetHeadroom(nodetable.Intern(node), h) }),
		w.watchEvictions(factory, do, table),
	)
}

func (w *Watch) watchEvictions(factory informers.SharedInformerFactory, do func(func()), table *nodetable.Table) error {
	return handle(w, factory.Core().V1().Pods().Informer(), func(_, obj *v1.Pod) {
		if obj == nil {
			return
		}
		if node, eviction, ok := nodetable.NewEviction(obj); ok {
			do(func() { table.AddEviction(nodetable.Intern(node), eviction) })
		}
	})
}

func (w *Watch) watchHeadroom(factory informers.SharedInformerFactory, do func(func()), set func(node string, h *nodetable.Headroom)) error {
	return handle(w, factory.Coordination().V1().Leases().Informer(), func(old, obj *coordinationv1.Lease) {
		lease := obj
		if obj == nil {
			lease = old
		}
		node, headroom, err := nodetable.NewHeadroom(lease)
		if w.ignored(lease, obj == nil, err) || obj == nil {
			headroom = nil
		}
		if node != "" {
			do(func() { set(node, headroom) })
		}
	})
}

func (w *Watch) watchGroups(factory informers.SharedInformerFactory) error {
	core, apps := factory.Core().V1(), factory.Apps().V1()
	return errors.Join(
		handle(w, core.Services().Informer(), group(w, "v1", "Service", func(s *v1.Service) *metav1.LabelSelector { return matching(s.Spec.Selector) })),
		handle(w, core.ReplicationControllers().Informer(), group(w, "v1", "ReplicationController", func(c *v1.ReplicationController) *metav1.LabelSelector {
			return matching(c.Spec.Selector)
		})),
		handle(w, apps.ReplicaSets().Informer(), group(w, "apps/v1", "ReplicaSet", func(s *appsv1.ReplicaSet) *metav1.LabelSelector { return s.Spec.Selector })),
		handle(w, apps.StatefulSets().Informer(), group(w, "apps/v1", "StatefulSet", func(s *appsv1.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector })),
	)
}

// group handles events of the objects whose selectors group pods.
func group[T object](w *Watch, apiVersion, kind string, selects func(T) *metav1.LabelSelector) func(old, obj T) {
	var none T
	return func(old, obj T) {
		var selector *metav1.LabelSelector
		if obj != none {
			old, selector = obj, selects(obj)
		}
		g := nodetable.Group{APIVersion: apiVersion, Kind: kind, Name: old.GetName()}
		w.loop.Do(func() { w.loop.Table.SetGroup(old.GetNamespace(), g, selector) })
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
	return errors.Join(
		handle(w, core.PersistentVolumes().Informer(), stored(w, framework.PersistentVolume, func(o *v1.PersistentVolume) {
			s.SetVolume(o)
			api.volumeChanged(o.Name)
		}, func(o *v1.PersistentVolume) {
			s.RemoveVolume(o.Name)
			api.volumeChanged(o.Name)
		})),
		handle(w, core.PersistentVolumeClaims().Informer(), stored(w, framework.PersistentVolumeClaim, func(o *v1.PersistentVolumeClaim) {
			s.SetClaim(o)
			api.claimChanged(o.Namespace, o.Name)
		}, func(o *v1.PersistentVolumeClaim) {
			s.RemoveClaim(o.Namespace, o.Name)
			api.claimChanged(o.Namespace, o.Name)
		})),
		handle(w, all.StorageClasses().Informer(), stored(w, framework.StorageClass, s.SetClass, func(o *storagev1.StorageClass) { s.RemoveClass(o.Name) })),
		handle(w, all.CSINodes().Informer(), stored(w, framework.CSINode, s.SetNode, func(o *storagev1.CSINode) { s.RemoveNode(o.Name) })),
		handle(w, all.CSIDrivers().Informer(), stored(w, framework.CSIDriver, s.SetDriver, func(o *storagev1.CSIDriver) { s.RemoveDriver(o.Name) })),
		handle(w, all.CSIStorageCapacities().Informer(), stored(w, framework.CSIStorageCapacity, s.SetCapacity, func(o *storagev1.CSIStorageCapacity) {
			s.RemoveCapacity(o.Namespace, o.Name)
		})),
		handle(w, all.VolumeAttachments().Informer(), stored(w, framework.VolumeAttachment, s.SetAttachment, func(o *storagev1.VolumeAttachment) { s.RemoveAttachment(o.Name) })),
	)
}

// stored handles events of storage objects, and calls the queueing hints.
func stored[T object](w *Watch, resource framework.Resource, set, remove func(T)) func(old, obj T) {
	var none T
	return func(old, obj T) {
		w.loop.Do(func() {
			var before, after any // untyped nil: none
			if old != none {
				before = old
			}
			if obj == none {
				remove(old)
			} else {
				after = obj
				set(obj)
			}
			w.loop.ObjectChanged(resource, before, after)
		})
	}
}
