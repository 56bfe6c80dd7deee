// Package workloads is the playground's controller manager, as small as it can be:
// it keeps as many pods of each ReplicaSet as are asked for, and so recreates what
// was evicted, preempted or deleted. It decides nothing else.
package workloads

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// retry passes before the API is asked again.
	retry = 500 * time.Millisecond
	// settle passes between a change and what is done about it, so that changes
	// that come together are looked at together.
	settle = 50 * time.Millisecond
)

// Controller looks after all ReplicaSets.
type Controller struct {
	client kubernetes.Interface
	log    *slog.Logger
}

// New returns a controller.
func New(client kubernetes.Interface, log *slog.Logger) *Controller {
	return &Controller{client, log}
}

// Run looks after them until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(c.client, 0)
	defer factory.Shutdown()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, UpdateFunc: func(any, any) { wake() }, DeleteFunc: func(any) { wake() },
	}
	for _, informer := range []cache.SharedIndexInformer{factory.Apps().V1().ReplicaSets().Informer(), factory.Core().V1().Pods().Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch workloads: %w", err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	due, settling := time.After(0), true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if !settling {
				due, settling = time.After(settle), true
			}
		case <-due:
			settling = false
			if err := c.sync(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("workloads not as they should be", "error", err)
				due = time.After(retry)
			}
		}
	}
}

// sync brings every set closer to what it should be. It lists what is, since what
// was watched may not show yet what was created last time.
func (c *Controller) sync(ctx context.Context) error {
	sets, err := c.client.AppsV1().ReplicaSets(v1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := c.client.CoreV1().Pods(v1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	owned := map[types.UID][]*v1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if owner := metav1.GetControllerOf(pod); owner != nil && active(pod) {
			owned[owner.UID] = append(owned[owner.UID], pod)
		}
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if err := c.keep(ctx, set, owned[set.UID]); err != nil {
			return fmt.Errorf("replica set %s/%s: %w", set.Namespace, set.Name, err)
		}
	}
	return nil
}

// active pods count as replicas (ReplicaSet controller, IsPodActive).
func active(pod *v1.Pod) bool {
	return pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed && pod.DeletionTimestamp == nil
}

// keep creates what a set misses, and deletes what it has too much of: pods that
// are bound to no node first, then the youngest.
func (c *Controller) keep(ctx context.Context, set *appsv1.ReplicaSet, pods []*v1.Pod) error {
	if set.DeletionTimestamp != nil {
		return nil
	}
	want := 1
	if set.Spec.Replicas != nil {
		want = int(*set.Spec.Replicas)
	}
	for range want - len(pods) {
		if _, err := c.client.CoreV1().Pods(set.Namespace).Create(ctx, replica(set), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if surplus := len(pods) - want; surplus > 0 {
		slices.SortFunc(pods, func(a, b *v1.Pod) int {
			bound := func(p *v1.Pod) int { return min(len(p.Spec.NodeName), 1) }
			return cmp.Or(cmp.Compare(bound(a), bound(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		for _, pod := range pods[:surplus] {
			err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		pods = pods[surplus:]
	}
	return c.writeStatus(ctx, set, pods)
}

func replica(set *appsv1.ReplicaSet) *v1.Pod {
	template := set.Spec.Template.DeepCopy()
	pod := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name, pod.GenerateName = set.Namespace, "", set.Name+"-"
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	return pod
}

func (c *Controller) writeStatus(ctx context.Context, set *appsv1.ReplicaSet, pods []*v1.Pod) error {
	status := appsv1.ReplicaSetStatus{Replicas: int32(len(pods)), FullyLabeledReplicas: int32(len(pods)), ObservedGeneration: set.Generation, Conditions: set.Status.Conditions}
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue }) {
			status.ReadyReplicas++
		}
	}
	status.AvailableReplicas = status.ReadyReplicas
	old := set.Status
	if old.Replicas == status.Replicas && old.ReadyReplicas == status.ReadyReplicas && old.AvailableReplicas == status.AvailableReplicas && old.ObservedGeneration == status.ObservedGeneration {
		return nil
	}
	set.Status = status
	_, err := c.client.AppsV1().ReplicaSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the change shows soon
	}
	return err
}
