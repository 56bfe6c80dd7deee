package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// evictionsAtOnce bounds concurrent evictions. The client waits as long as Retry-After
// says after a 429.
const evictionsAtOnce = 32

// Writer writes decisions to the API server. It implements framework.Binder and
// cycle.API.
type Writer struct {
	client    kubernetes.Interface
	binds     *limit
	urgent    *traffic // bindings and evictions
	evictions chan struct{}
	statuses  *statuses
	podGroups *latest[podGroupUpdate]
	events    *events
}

// NewWriter makes a writer. pods is the informer's store, from which unchanged
// statuses are known.
func NewWriter(client kubernetes.Interface, pods cache.Store, log *slog.Logger) *Writer {
	urgent := newTraffic()
	return &Writer{
		client: client, binds: newLimit(), urgent: urgent, evictions: make(chan struct{}, evictionsAtOnce),
		statuses: newStatuses(client, pods, log), podGroups: newPodGroupStatuses(client, log), events: newEvents(client.EventsV1(), urgent, log),
	}
}

// Run writes statuses and events until the context ends.
func (w *Writer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { w.statuses.run(ctx, statusWriters) })
	running.Go(func() { w.podGroups.run(ctx, 1) })
	running.Go(func() { w.events.run(ctx) })
	running.Wait()
	return nil
}

// take waits for a slot; free releases it.
func take(ctx context.Context, slots chan struct{}) (free func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// traffic counts running and waiting requests.
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

// pause is closed when there are none.
func (t *traffic) pause() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quiet
}

// bindPauses are the pauses before a Binding is repeated that a server in trouble did not take. Source: kube-scheduler
// (util.BindPod, retry.DefaultBackoff).
var bindPauses = []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond}

// Bind creates the Binding of a pod, by uid. A server may have taken one without an answer: that the pod has the node already is a
// success then.
func (w *Writer) Bind(ctx context.Context, pod *nodetable.Pod, node *nodetable.Node) error {
	w.urgent.enter()
	defer w.urgent.leave()
	err := w.bind(ctx, pod, node)
	for _, pause := range bindPauses {
		if !isTransient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		if err = w.bind(ctx, pod, node); isBoundTo(err, node.Name.Value()) {
			return nil
		}
	}
	return err
}

func (w *Writer) bind(ctx context.Context, pod *nodetable.Pod, node *nodetable.Node) error {
	object := pod.Object
	return w.binds.do(ctx, func(ctx context.Context) error {
		// Pods.Bind makes query parameters by reflection, also of no options.
		post := w.client.CoreV1().RESTClient().Post().Namespace(object.Namespace).Resource("pods").Name(object.Name).SubResource("binding")
		return post.Body(&v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
			Target:     v1.ObjectReference{Kind: "Node", Name: node.Name.Value()},
		}).Do(ctx).Error()
	})
}

func isTransient(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || utilnet.IsConnectionRefused(err)
}

// isBoundTo says whether a Binding was refused because the pod has that node.
func isBoundTo(err error, node string) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), fmt.Sprintf("is already assigned to node %q", node))
}

// PatchStatus queues a status, merged with a queued one of the pod.
func (w *Writer) PatchStatus(pod *v1.Pod, s cycle.Status) { w.statuses.add(pod, s) }

// RecordEvent queues an event; it is dropped if the queue is full.
func (w *Writer) RecordEvent(e cycle.Event) { w.events.add(e) }

// DeleteVictim sets the condition DisruptionTarget and deletes the victim with its
// own grace period. Disruption budgets were respected as far as possible when the
// victim was selected.
func (w *Writer) DeleteVictim(ctx context.Context, victim, preemptor *v1.Pod) error {
	w.urgent.enter()
	defer w.urgent.leave()
	free, err := take(ctx, w.evictions)
	if err != nil {
		return err
	}
	defer free()
	kind := "pod"
	if preemptor.Kind == "PodGroup" {
		kind = "podgroup"
	}
	pods := w.client.CoreV1().Pods(victim.Namespace)
	body, err := statusPatch(victim.UID, podStatus{Conditions: []v1.PodCondition{{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
		Message:            preemptor.Spec.SchedulerName + ": preempting to accommodate a higher priority " + kind,
		ObservedGeneration: victim.Generation, LastTransitionTime: metav1.NewTime(time.Now()),
	}}})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, victim.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil && !apierrors.IsConflict(err): // a conflict is found again by the deletion
		return fmt.Errorf("set condition DisruptionTarget: %w", err)
	}
	err = pods.Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
	if gone(err) {
		return nil
	}
	return err
}

// gone reports whether the pod does not exist, or another pod has its name.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// podStatus is a patch of a pod's status.
type podStatus struct {
	NominatedNodeName *nominated        `json:"nominatedNodeName,omitempty"`
	Conditions        []v1.PodCondition `json:"conditions,omitempty"`

	ExtendedResourceClaimStatus *v1.PodExtendedResourceClaimStatus `json:"extendedResourceClaimStatus,omitempty"`
}

// nominated is null if empty.
type nominated string

func (n nominated) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

// statusPatch is a strategic merge patch with the uid as precondition.
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
