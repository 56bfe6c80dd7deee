// Package kube follows the pods of one node on an API server. It neither judges
// them nor looks for their processes.
package kube

import (
	"context"
	"log/slog"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Sink takes up the pods; it is called from one goroutine at a time.
type Sink interface {
	// Pod is new, or has changed in what eviction goes by.
	Pod(*v1.Pod)
	// Gone is no longer a pod of the node that could be ended.
	Gone(types.UID)
	// Synced: every pod there was has been handed over.
	Synced()
}

// Config of Follow.
type Config struct {
	Node string
	// Keep says of a pod that has ended by its status whether it is handed over
	// all the same.
	Keep func(types.UID) bool
}

// Follow hands over the pods of a node until ctx ends: those there are, and then
// what changes. Pods that have ended are left out.
func Follow(ctx context.Context, client kubernetes.Interface, cfg Config, sink Sink, log *slog.Logger) {
	f := &follower{cfg: cfg, sink: sink, handed: map[types.UID]*v1.Pod{}}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", cfg.Node)),
		ObjectType:    &v1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    f.update,
			UpdateFunc: f.replace,
			DeleteFunc: f.remove,
		},
		Transform: trim,
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { controller.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		log.Info("the pods of the node are known", "node", cfg.Node)
		f.mu.Lock()
		defer f.mu.Unlock()
		sink.Synced()
	}
}

type follower struct {
	cfg  Config
	sink Sink

	mu     sync.Mutex
	handed map[types.UID]*v1.Pod
}

func (f *follower) update(obj any) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.handed[pod.UID]
	switch {
	case ended(pod) && !f.cfg.Keep(pod.UID):
		f.drop(pod.UID)
	case last == nil || !alike(last, pod):
		f.handed[pod.UID] = pod
		f.sink.Pod(pod)
	}
}

// replace tells apart a change of a pod and another pod of the same name.
func (f *follower) replace(old, obj any) {
	if before, ok := old.(*v1.Pod); ok && before.UID != obj.(*v1.Pod).UID {
		f.remove(old)
	}
	f.update(obj)
}

func (f *follower) remove(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if pod, ok := obj.(*v1.Pod); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.drop(pod.UID)
	}
}

func (f *follower) drop(uid types.UID) {
	if f.handed[uid] != nil {
		delete(f.handed, uid)
		f.sink.Gone(uid)
	}
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// alike says whether two states of a pod are the same to eviction; most changes
// are of the status.
func alike(a, b *v1.Pod) bool {
	return ended(a) == ended(b) && a.Generation == b.Generation &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// trim leaves out what nobody here reads, before it is kept.
func trim(obj any) (any, error) {
	if pod, ok := obj.(*v1.Pod); ok {
		pod.ManagedFields = nil
		delete(pod.Annotations, v1.LastAppliedConfigAnnotation)
		pod.Status = v1.PodStatus{Phase: pod.Status.Phase, QOSClass: pod.Status.QOSClass}
	}
	return obj, nil
}
