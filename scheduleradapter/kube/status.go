package kube

import (
	"context"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const statusWriters = 16

// statuses writes the latest status of each pod.
type statuses struct {
	*latest[statusUpdate]
	client kubernetes.Interface
	pods   cache.Store
}

// statusUpdate is a status for a version of a pod.
type statusUpdate struct {
	pod    *v1.Pod
	status cycle.Status
}

func newStatuses(client kubernetes.Interface, pods cache.Store, log *slog.Logger) *statuses {
	s := &statuses{client: client, pods: pods}
	s.latest = newLatest(s.write)
	s.merge = func(older, newer statusUpdate) statusUpdate {
		return statusUpdate{newer.pod, older.status.With(newer.status)}
	}
	s.failed = func(update statusUpdate, err error) {
		log.Error("status of pod is not patched", "pod", update.pod.Namespace+"/"+update.pod.Name, "error", err)
		written(update.status, "")
	}
	return s
}

func (s *statuses) add(pod *v1.Pod, status cycle.Status) {
	s.latest.add(pod.UID, statusUpdate{pod, status})
}

// write patches a status. That of a pod that is gone counts as written.
func (s *statuses) write(ctx context.Context, update statusUpdate) error {
	version, err := s.patch(ctx, update)
	if err == nil || gone(err) || ctx.Err() != nil {
		written(update.status, version)
		return nil
	}
	return err
}

// patch patches the fields that differ from the informer's version, and returns the
// resourceVersion of the pod that has them; empty: nothing was written.
func (s *statuses) patch(ctx context.Context, update statusUpdate) (version string, err error) {
	pod := update.pod
	latest, _, _ := s.pods.GetByKey(pod.Namespace + "/" + pod.Name)
	switch latest := latest.(type) {
	case *digestedPod:
		switch {
		case latest.pod.UID != pod.UID:
		case latest.pod.Node != nodetable.Symbol{}:
			return "", nil
		default:
			pod = latest.pod.Object
		}
	case *v1.Pod:
		if latest.UID == pod.UID {
			pod = latest
		}
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
