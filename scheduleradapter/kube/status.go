package kube

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/evictd/evictd/scheduleradapter/cycle"
)

const (
	statusWriters  = 16
	statusAttempts = 8 // patches that the API server rejects
)

// statuses writes the latest status of each pod; one request per pod runs at a
// time.
type statuses struct {
	client kubernetes.Interface
	pods   listers.PodLister
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[types.UID]

	mu      sync.Mutex
	pending map[types.UID]statusUpdate
}

// statusUpdate is a status for a version of a pod.
type statusUpdate struct {
	pod    *v1.Pod
	status cycle.Status
}

func newStatuses(client kubernetes.Interface, pods listers.PodLister, log *slog.Logger) *statuses {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)
	return &statuses{client: client, pods: pods, log: log, queue: workqueue.NewTypedRateLimitingQueue(limit), pending: map[types.UID]statusUpdate{}}
}

func (s *statuses) add(pod *v1.Pod, status cycle.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[pod.UID] = statusUpdate{pod, s.pending[pod.UID].status.With(status)}
	s.queue.Add(pod.UID)
}

func (s *statuses) run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	var writers sync.WaitGroup
	for range statusWriters {
		writers.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	writers.Wait()
}

// next writes one status; false: the context has ended.
func (s *statuses) next(ctx context.Context) bool {
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
	version, err := s.write(ctx, update)
	switch {
	case err == nil || gone(err) || ctx.Err() != nil:
		s.queue.Forget(uid)
		written(update.status, version)
	case s.queue.NumRequeues(uid) >= statusAttempts:
		s.queue.Forget(uid)
		s.log.Error("status of pod is not patched", "pod", update.pod.Namespace+"/"+update.pod.Name, "error", err)
		written(update.status, "")
	default:
		s.mu.Lock()
		update.status = update.status.With(s.pending[uid].status)
		s.pending[uid] = update
		s.mu.Unlock()
		s.queue.AddRateLimited(uid)
	}
	return true
}

// write patches the fields that differ from the informer's version, and returns the
// resourceVersion of the pod that has them; empty: nothing was written.
func (s *statuses) write(ctx context.Context, update statusUpdate) (version string, err error) {
	pod := update.pod
	if latest, err := s.pods.Pods(pod.Namespace).Get(pod.Name); err == nil && latest.UID == pod.UID {
		pod = latest
	}
	if pod.Spec.NodeName != "" {
		return "", nil
	}
	status, differs := changes(pod, update.status, time.Now())
	if !differs {
		return pod.ResourceVersion, nil
	}
	body, err := statusPatch(pod.UID, status)
	if err != nil {
		return "", err
	}
	patched, err := s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return "", err
	}
	return patched.ResourceVersion, nil
}

func written(s cycle.Status, version string) {
	if s.Written != nil {
		s.Written(version)
	}
}

func changes(pod *v1.Pod, s cycle.Status, now time.Time) (status podStatus, differs bool) {
	if s.Nominated != nil && *s.Nominated != pod.Status.NominatedNodeName {
		node := nominated(*s.Nominated)
		status.NominatedNodeName, differs = &node, true
	}
	if s.Reason == "" {
		return status, differs
	}
	c := v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: s.Reason, Message: s.Message,
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if i := slices.IndexFunc(pod.Status.Conditions, func(old v1.PodCondition) bool { return old.Type == c.Type }); i >= 0 {
		old := &pod.Status.Conditions[i]
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message && old.ObservedGeneration == c.ObservedGeneration {
			return status, differs
		}
	}
	status.Conditions = []v1.PodCondition{c}
	return status, true
}
