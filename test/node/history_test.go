package node_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

var discard = slog.New(slog.DiscardHandler)

// history is what the API server has said of a namespace's pods, and what of it
// may never be. Where the API server is away it is read anew.
type history struct {
	mu     sync.Mutex
	lives  map[types.UID]*life
	told   map[types.UID]map[string]bool // names of the events of evictions
	faults []string
}

// life is a pod's so far.
type life struct {
	*v1.Pod
	failures        int // how often it has come to have failed
	leaves, deleted bool
}

// follow keeps the history until the test ends.
func follow(t testing.TB, a *api) *history {
	t.Helper()
	h := &history{lives: map[types.UID]*life{}, told: map[types.UID]map[string]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(a.Interface, 0, informers.WithNamespace(a.namespace))
	for _, add := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandlerFuncs
	}{
		{factory.Core().V1().Pods().Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { h.see(obj.(*v1.Pod)) },
			UpdateFunc: func(_, obj any) { h.see(obj.(*v1.Pod)) },
			DeleteFunc: h.miss,
		}},
		{factory.Events().V1().Events().Informer(), cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { h.hear(obj.(*events.Event)) }}},
	} {
		if _, err := add.informer.AddEventHandler(add.handler); err != nil {
			t.Fatal(err)
		}
	}
	factory.StartWithContext(t.Context())
	t.Cleanup(factory.Shutdown)
	factory.WaitForCacheSync(t.Context().Done())
	return h
}

func (h *history) fault(pod *v1.Pod, format string, args ...any) {
	h.faults = append(h.faults, pod.Name+" "+fmt.Sprintf(format, args...))
}

// see takes up what a pod has become.
func (h *history) see(pod *v1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lives[pod.UID]
	if l == nil {
		l = &life{Pod: &v1.Pod{}}
		h.lives[pod.UID] = l
	}
	before := l.Pod
	l.Pod = pod
	if was := before.Spec.NodeName; was != "" && was != pod.Spec.NodeName {
		h.fault(pod, "was bound to %s and then to %q", was, pod.Spec.NodeName)
	}
	failed := pod.Status.Phase == v1.PodFailed
	switch {
	case before.Status.Phase == v1.PodFailed && !failed:
		h.fault(pod, "had failed and is %s", pod.Status.Phase)
	case before.Status.Phase == v1.PodFailed || !failed:
		return
	}
	if l.failures++; l.failures > 1 {
		h.fault(pod, "has failed %d times", l.failures)
	}
	if why := misjudged(pod); why != "" {
		h.fault(pod, "%s: %+v", why, pod.Status)
	}
}

// misjudged says what is wrong with the status of an evicted pod.
func misjudged(pod *v1.Pod) string {
	switch s := &pod.Status; {
	case pod.Labels[kindOfCrowd] != leaks:
		return "was evicted and did not leak"
	case s.Reason != "Evicted":
		return "failed for another reason"
	case !strings.HasPrefix(s.Message, "The node was low on resource: memory. "):
		return "was evicted without a message"
	case !slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet
	}):
		return "was evicted without DisruptionTarget"
	}
	return ""
}

func (h *history) miss(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	pod := obj.(*v1.Pod)
	l := h.lives[pod.UID]
	if l.deleted = true; !l.leaves {
		h.fault(pod, "is lost")
	}
}

// hear takes up an event. The embedded API forgets events when it is killed, so
// that the same one may come again.
func (h *history) hear(e *events.Event) {
	if e.Reason != "Evicted" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	names := h.told[e.Regarding.UID]
	if names == nil {
		names = map[string]bool{}
		h.told[e.Regarding.UID] = names
	}
	if names[e.Name] = true; len(names) == 2 {
		h.faults = append(h.faults, fmt.Sprintf("%s was evicted twice, the second time as %s", e.Regarding.Name, e.Note))
	}
}

// expect says that a pod is going to be deleted.
func (h *history) expect(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives[uid].leaves = true
}

func (h *history) of(uid types.UID) life {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *h.lives[uid]
}

// all are the pods that are there, by name.
func (h *history) all() map[string]life {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := map[string]life{}
	for _, l := range h.lives {
		if !l.deleted {
			there[l.Name] = *l
		}
	}
	return there
}

func (h *history) faulty() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.faults)
}

// String sums the history up.
func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	bound, evicted := 0, 0
	for _, l := range h.lives {
		if l.Spec.NodeName != "" {
			bound++
		}
		evicted += l.failures
	}
	return fmt.Sprintf("%d pods, %d bound, %d evicted", len(h.lives), bound, evicted)
}
