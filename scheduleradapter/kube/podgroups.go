package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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

// podGroupUpdate is a condition for a version of a PodGroup.
type podGroupUpdate struct {
	group     *schedulingv1beta1.PodGroup
	condition metav1.Condition
}

// newPodGroupStatuses makes the writer of the latest condition of each PodGroup.
func newPodGroupStatuses(client kubernetes.Interface, log *slog.Logger) *latest[podGroupUpdate] {
	s := newLatest(func(ctx context.Context, update podGroupUpdate) error {
		if err := patchPodGroup(ctx, client, update); err != nil && !gone(err) && ctx.Err() == nil {
			return err
		}
		return nil
	})
	s.failed = func(update podGroupUpdate, err error) {
		log.Error("status of PodGroup is not patched", "podGroup", update.group.Namespace+"/"+update.group.Name, "error", err)
	}
	return s
}

// PatchPodGroup patches a condition of a PodGroup's status unless the PodGroup has it.
func (w *Writer) PatchPodGroup(group *schedulingv1beta1.PodGroup, condition metav1.Condition) {
	conditions := slices.Clone(group.Status.Conditions)
	if !meta.SetStatusCondition(&conditions, condition) {
		return
	}
	w.podGroups.add(group.UID, podGroupUpdate{group, *meta.FindStatusCondition(conditions, condition.Type)})
}

func patchPodGroup(ctx context.Context, client kubernetes.Interface, update podGroupUpdate) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": update.group.UID},
		"status":   map[string]any{"conditions": []metav1.Condition{update.condition}},
	})
	if err != nil {
		return err
	}
	_, err = client.SchedulingV1beta1().PodGroups(update.group.Namespace).Patch(ctx, update.group.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
