package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
)

// PodGroups also watches PodGroups. The caller starts the factory later.
func (w *Watch) PodGroups(factory informers.SharedInformerFactory) error {
	return handle(w, factory.Scheduling().V1beta1().PodGroups().Informer(), func(old, obj *schedulingv1beta1.PodGroup) {
		if obj == nil {
			w.loop.Do(func() { w.loop.RemovePodGroup(old) })
			return
		}
		w.loop.Do(func() { w.loop.SetPodGroup(obj) })
	})
}

// podGroupStatuses writes the latest condition of each PodGroup.
type podGroupStatuses struct {
	client kubernetes.Interface
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[types.UID]

	mu      sync.Mutex
	pending map[types.UID]podGroupUpdate
}

type podGroupUpdate struct {
	group     *schedulingv1beta1.PodGroup
	condition metav1.Condition
}

func newPodGroupStatuses(client kubernetes.Interface, log *slog.Logger) *podGroupStatuses {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)
	return &podGroupStatuses{client: client, log: log, queue: workqueue.NewTypedRateLimitingQueue(limit), pending: map[types.UID]podGroupUpdate{}}
}

// PatchPodGroup patches a condition of a PodGroup's status unless the PodGroup has it.
func (w *Writer) PatchPodGroup(group *schedulingv1beta1.PodGroup, condition metav1.Condition) {
	conditions := slices.Clone(group.Status.Conditions)
	if !meta.SetStatusCondition(&conditions, condition) {
		return
	}
	s := w.podGroups
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[group.UID] = podGroupUpdate{group, *meta.FindStatusCondition(conditions, condition.Type)}
	s.queue.Add(group.UID)
}

func (s *podGroupStatuses) run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	for s.next(ctx) {
	}
}

// next writes one condition; false: the context has ended.
func (s *podGroupStatuses) next(ctx context.Context) bool {
	uid, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(uid)
	s.mu.Lock()
	update, found := s.pending[uid]
	delete(s.pending, uid)
	s.mu.Unlock()
	if !found {
		return true
	}
	group := update.group
	err := s.write(ctx, update)
	switch {
	case err == nil || gone(err) || ctx.Err() != nil:
		s.queue.Forget(uid)
	case s.queue.NumRequeues(uid) >= statusAttempts:
		s.queue.Forget(uid)
		s.log.Error("status of PodGroup is not patched", "podGroup", group.Namespace+"/"+group.Name, "error", err)
	default:
		s.mu.Lock()
		if _, newer := s.pending[uid]; !newer {
			s.pending[uid] = update
		}
		s.mu.Unlock()
		s.queue.AddRateLimited(uid)
	}
	return true
}

func (s *podGroupStatuses) write(ctx context.Context, update podGroupUpdate) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": update.group.UID},
		"status":   map[string]any{"conditions": []metav1.Condition{update.condition}},
	})
	if err != nil {
		return err
	}
	_, err = s.client.SchedulingV1beta1().PodGroups(update.group.Namespace).Patch(ctx, update.group.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
