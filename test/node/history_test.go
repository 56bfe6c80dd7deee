package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/test/harness/kube"
)

// history is what the API server has sent of a namespace's pods, and the faults in it.
// After an outage of the API server it is read again.
type history struct {
	mu     sync.Mutex
	lives  map[types.UID]*life
	events map[types.UID]map[string]bool // names of the events of evictions
	faults []string
}

// life is a pod's so far.
type life struct {
	*v1.Pod
	failures        int // how often it has come to have failed
	leaves, deleted bool
}

// follow keeps the history until the test ends.
func follow(t testing.TB, a *kube.API) *history {
	t.Helper()
	h := &history{lives: map[types.UID]*life{}, events: map[types.UID]map[string]bool{}}
	pods := cache.NewListWatchFromClient(a.CoreV1().RESTClient(), "pods", a.Namespace, fields.Everything())
	evictions := cache.NewListWatchFromClient(a.EventsV1().RESTClient(), "events", a.Namespace, fields.Everything())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var reading sync.WaitGroup
	reading.Go(func() { h.read(ctx, pods) })
	reading.Go(func() { h.read(ctx, evictions) })
	t.Cleanup(func() {
		cancel()
		reading.Wait()
	})
	return h
}

// read lists and watches. Unlike an informer it connects again as soon as the API
// server is back.
func (h *history) read(ctx context.Context, from *cache.ListWatch) {
	for ctx.Err() == nil {
		_ = h.readOnce(ctx, from) // the server is away
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (h *history) readOnce(ctx context.Context, from *cache.ListWatch) error {
	list, err := from.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if pods, ok := list.(*v1.PodList); ok {
		h.hold(pods.Items)
	}
	if list, ok := list.(*events.EventList); ok {
		for i := range list.Items {
			h.event(&list.Items[i])
		}
	}
	at, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	changes, err := from.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: at.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		switch object := change.Object.(type) {
		case *v1.Pod:
			if h.see(object); change.Type == watch.Deleted {
				h.miss(object.UID)
			}
		case *events.Event:
			h.event(object)
		default:
			return apierrors.FromObject(object)
		}
	}
	return nil
}

// hold stores a list of all pods.
func (h *history) hold(pods []v1.Pod) {
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].UID] = true
		h.see(&pods[i])
	}
	for _, l := range h.all() {
		if !there[l.UID] {
			h.miss(l.UID)
		}
	}
}

func (h *history) fault(pod *v1.Pod, format string, args ...any) {
	h.faults = append(h.faults, pod.Name+" "+fmt.Sprintf(format, args...))
}

// see stores a change of a pod.
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

// miss stores that a pod is deleted.
func (h *history) miss(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lives[uid]
	if l.deleted = true; !l.leaves {
		h.fault(l.Pod, "is lost")
	}
}

// event stores an event. The embedded API forgets events when it is killed, so
// that the same one may come again.
func (h *history) event(e *events.Event) {
	if e.Reason != "Evicted" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	names := h.events[e.Regarding.UID]
	if names == nil {
		names = map[string]bool{}
		h.events[e.Regarding.UID] = names
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
