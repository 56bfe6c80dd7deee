// Package kube follows the pods of one node on an API server. It neither judges
// them nor looks for their processes.
package kube

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/internal/pace"
	"github.com/evictd/evictd/internal/podspec"
)

// Sink receives the pods; it is called from one goroutine at a time.
type Sink interface {
	// Pod is new, or has changed in what eviction goes by.
	Pod(*v1.Pod)
	// Gone is no longer a pod of the node that could be ended.
	Gone(types.UID)
	// Evicted was evicted by its status, as of the kubelet or of evictd. It is sent once.
	Evicted(Evicted)
	// Synced: every pod that existed was sent.
	Synced()
}

// Evicted is a pod that was evicted.
type Evicted struct {
	Namespace, Name string
	UID             types.UID
	podspec.Eviction
}

// Config of Follow.
type Config struct {
	Node string
	// Keep says of a pod that has ended by its status whether it is sent
	// nevertheless.
	Keep func(types.UID) bool
}

// An API server that is away is looked for after firstRetry, and then each time
// after twice as long, up to lastRetry: a pod that evictd does not know of is not
// protected. Informers would come to wait for a minute.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Follow sends the pods of a node until ctx ends: those that exist, and then
// what changes. Pods that have ended are left out.
func Follow(ctx context.Context, pods cache.Getter, cfg Config, sink Sink, log *slog.Logger) {
	f := &follower{cfg: cfg, sink: sink, log: log, sent: map[types.UID]*v1.Pod{}, evicted: map[types.UID]bool{}}
	source := cache.NewListWatchFromClient(pods, "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", cfg.Node))
	reflector := cache.NewReflectorWithOptions(reducing{pace.Of(source)}, &v1.Pod{}, f, cache.ReflectorOptions{
		Backoff: &wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32, Cap: lastRetry},
	})
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(ctx)
}

// pageSize bounds the pods that are in memory before they are reduced, where the API server
// does not stream them.
const pageSize = 10

// reducing is the pods of the API server, reduced as they come.
type reducing struct{ pace.ListWatch }

// ListWithContext lists a page. A list of the watch cache would have no pages.
func (r reducing) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	list, err := r.ListWatch.ListWithContext(ctx, options)
	if pods, is := list.(*v1.PodList); is {
		for i := range pods.Items {
			pods.Items[i] = *reduce(&pods.Items[i])
		}
	}
	return list, err
}

// WatchWithContext watches, see Follow.
func (r reducing) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := r.ListWatch.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if pod, is := e.Object.(*v1.Pod); is && e.Type != watch.Bookmark {
			e.Object = reduce(pod)
		}
		return e, true
	}), nil
}

// follower is the store of a reflector, which calls it from one goroutine.
type follower struct {
	cfg    Config
	sink   Sink
	log    *slog.Logger
	synced bool
	sent   map[types.UID]*v1.Pod
	// evicted are those that were sent as such, and still exist.
	evicted map[types.UID]bool
}

// Add adds a pod.
func (f *follower) Add(obj any) error {
	pod := obj.(*v1.Pod)
	if e, is := podspec.EvictionOf(&pod.Status); is && e.Resource != "" && !e.At.IsZero() && !f.evicted[pod.UID] {
		f.evicted[pod.UID] = true
		f.sink.Evicted(Evicted{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Eviction: e})
	}
	last := f.sent[pod.UID]
	switch {
	case ended(pod) && !f.cfg.Keep(pod.UID):
		f.drop(pod.UID)
	case last == nil || !alike(last, pod):
		f.sent[pod.UID] = pod
		f.sink.Pod(pod)
	}
	return nil
}

// Update replaces a pod.
func (f *follower) Update(obj any) error { return f.Add(obj) }

// Delete leaves out a pod that is no more.
func (f *follower) Delete(obj any) error {
	uid := obj.(*v1.Pod).UID
	delete(f.evicted, uid)
	f.drop(uid)
	return nil
}

// Replace replaces all pods.
func (f *follower) Replace(list []any, _ string) error {
	there := map[types.UID]bool{}
	for _, obj := range list {
		there[obj.(*v1.Pod).UID] = true
	}
	for uid := range f.sent {
		if !there[uid] {
			f.drop(uid)
		}
	}
	maps.DeleteFunc(f.evicted, func(uid types.UID, _ bool) bool { return !there[uid] })
	for _, obj := range list {
		_ = f.Add(obj) // never fails
	}
	if !f.synced {
		f.synced = true
		f.log.Info("the pods of the node are known", "node", f.cfg.Node)
		f.sink.Synced()
	}
	return nil
}

// Resync does nothing.
func (f *follower) Resync() error { return nil }

func (f *follower) drop(uid types.UID) {
	if f.sent[uid] != nil {
		delete(f.sent, uid)
		f.sink.Gone(uid)
	}
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// alike says whether two states of a pod are the same to eviction; most changes
// are of what reduce leaves out of the status.
func alike(a, b *v1.Pod) bool {
	return ended(a) == ended(b) && a.Generation == b.Generation &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Status.Conditions, b.Status.Conditions) && equality.Semantic.DeepEqual(a.Status.ContainerStatuses, b.Status.ContainerStatuses)
}

// reduce keeps what evictd needs to know, and leaves out what is not so.
func reduce(pod *v1.Pod) *v1.Pod {
	allocate(pod)
	status := pod.Status
	pod = podspec.Reduce(pod)
	if _, is := podspec.EvictionOf(&status); is {
		pod.Status.Reason, pod.Status.Message = status.Reason, status.Message
		pod.Status.Conditions, pod.Status.ContainerStatuses = status.Conditions, status.ContainerStatuses
	}
	if !podspec.IsMirror(pod) { // a kubelet runs none that it has not made
		podspec.Unclaim(pod)
	}
	return pod
}

// allocate has a pod request what the kubelet has given it: a resize that the node
// has no room for changes what is asked for, and nothing else.
func allocate(pod *v1.Pod) {
	containers := func(all []v1.Container, statuses []v1.ContainerStatus) {
		for i := range all {
			for j := range statuses {
				if statuses[j].Name == all[i].Name && len(statuses[j].AllocatedResources) > 0 {
					give(all[i].Resources.Requests, statuses[j].AllocatedResources)
				}
			}
		}
	}
	containers(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	containers(pod.Spec.Containers, pod.Status.ContainerStatuses)
	if pod.Spec.Resources != nil && len(pod.Status.AllocatedResources) > 0 {
		give(pod.Spec.Resources.Requests, pod.Status.AllocatedResources)
	}
}

// give changes what can be resized. What was not given is none.
func give(requests, given v1.ResourceList) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		amount, is := given[name]
		if _, asked := requests[name]; asked && is {
			requests[name] = amount
		} else {
			delete(requests, name)
		}
	}
}
