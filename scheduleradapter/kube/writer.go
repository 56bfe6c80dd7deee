package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Requests of a kind that are under way at once. A server that asks to be spared
// (429) is, by client-go, for as long as it says; the bounds keep it at that.
const (
	bindsAtOnce     = 128
	evictionsAtOnce = 32
)

// Writer tells the API server what was decided. It implements framework.Binder
// and loop.API.
type Writer struct {
	client    kubernetes.Interface
	binds     chan struct{}
	binding   *traffic
	evictions chan struct{}
	statuses  *statuses
	events    *events
}

// NewWriter makes a writer. Pods is what the API server has told of pods, so that
// nothing is written twice.
func NewWriter(client kubernetes.Interface, pods listers.PodLister, log *slog.Logger) *Writer {
	binding := newTraffic()
	return &Writer{
		client: client, binds: make(chan struct{}, bindsAtOnce), binding: binding, evictions: make(chan struct{}, evictionsAtOnce),
		statuses: newStatuses(client, pods, log), events: newEvents(client.EventsV1(), binding, log),
	}
}

// Run writes statuses and events until the context ends.
func (w *Writer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { w.statuses.run(ctx) })
	running.Go(func() { w.events.run(ctx) })
	running.Wait()
	return nil
}

// take waits for one of the slots; free gives it back.
func take(ctx context.Context, slots chan struct{}) (free func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// traffic is the requests of a kind that are under way or wait for a slot.
type traffic struct {
	mu    sync.Mutex
	n     int
	quiet chan struct{} // closed while there are none
}

func newTraffic() *traffic {
	t := &traffic{quiet: make(chan struct{})}
	close(t.quiet)
	return t
}

func (t *traffic) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n++; t.n == 1 {
		t.quiet = make(chan struct{})
	}
}

func (t *traffic) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 {
		close(t.quiet)
	}
}

// pause is closed when there are none next.
func (t *traffic) pause() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quiet
}

// Bind gives the pod of this uid the node.
func (w *Writer) Bind(ctx context.Context, pod *nodetable.Pod, node *nodetable.Node) error {
	w.binding.enter()
	defer w.binding.leave()
	free, err := take(ctx, w.binds)
	if err != nil {
		return err
	}
	defer free()
	object := pod.Object
	return w.client.CoreV1().Pods(object.Namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node.Name.Value()},
	}, metav1.CreateOptions{})
}

// PatchStatus has a status written soon; of several for a pod, what they say
// together.
func (w *Writer) PatchStatus(pod *v1.Pod, s cycle.Status) { w.statuses.add(pod, s) }

// Tell has an event recorded, unless too many are waiting.
func (w *Writer) RecordEvent(e cycle.Event) { w.events.add(e) }

// Evict says in the victim's status why it goes, and deletes it with the grace it
// asks for. Budgets were respected as far as they can be when it was chosen.
func (w *Writer) DeleteVictim(ctx context.Context, victim, preemptor *v1.Pod) error {
	free, err := take(ctx, w.evictions)
	if err != nil {
		return err
	}
	defer free()
	pods := w.client.CoreV1().Pods(victim.Namespace)
	body, err := statusPatch(victim.UID, podStatus{Conditions: []v1.PodCondition{{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
		Message:            preemptor.Spec.SchedulerName + ": preempting to accommodate a higher priority pod",
		ObservedGeneration: victim.Generation, LastTransitionTime: metav1.NewTime(time.Now()),
	}}})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, victim.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil && !apierrors.IsConflict(err): // which of the two that is the deletion finds out
		return fmt.Errorf("mark it as disrupted: %w", err)
	}
	err = pods.Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
	if gone(err) {
		return nil
	}
	return err
}

// gone says whether a pod is no more, or another one has its name.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// podStatus is what a patch says of a pod's status.
type podStatus struct {
	NominatedNodeName *nominated        `json:"nominatedNodeName,omitempty"`
	Conditions        []v1.PodCondition `json:"conditions,omitempty"`
}

// nominated is null where no node is.
type nominated string

// MarshalJSON writes null for no node, which takes the field away.
func (n nominated) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

// statusPatch is a strategic merge patch that another pod of the same name
// refuses.
func statusPatch(uid types.UID, s podStatus) ([]byte, error) {
	var patch struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
		Status podStatus `json:"status"`
	}
	patch.Metadata.UID, patch.Status = uid, s
	return json.Marshal(patch)
}
