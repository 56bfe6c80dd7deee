package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/plugins/devices"
)

const (
	// claimsAtOnce bounds the binding cycles that write claims.
	claimsAtOnce = 128
	// readinessInterval is how often a binding that waits for devices compares the
	// time, without a change of a claim.
	readinessInterval = 5 * time.Second
	// retryInterval is the pause after a request that failed, or that got no answer.
	retryInterval = 2 * time.Second
)

// Devices implements devices.API.
type Devices struct {
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	record    func(cycle.Event)
	log       *slog.Logger
	metrics   deviceMetrics
	writes    chan struct{}
	calls     *cycle.Calls

	waiting waiting

	mu    sync.Mutex
	retry func(types.UID)
}

// NewDevices reads the claims of a factory, whose informer Watch.Devices makes, and
// records events.
func NewDevices(client kubernetes.Interface, factory informers.SharedInformerFactory, record func(cycle.Event), log *slog.Logger, set *metric.Set) *Devices {
	return &Devices{
		client: client, informers: factory, record: record, log: log, metrics: newDeviceMetrics(set), writes: make(chan struct{}, claimsAtOnce), calls: cycle.NewCalls(),
		retry: func(types.UID) {},
	}
}

// Served are the resources of a group version that the API server serves; it waits
// for an answer. The error is that of the context.
func Served(ctx context.Context, client kubernetes.Interface, version schema.GroupVersion) (names []string, err error) {
	for {
		list, err := client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, version.String())
		switch {
		case err == nil:
			for i := range list.APIResources {
				names = append(names, list.APIResources[i].Name)
			}
			return names, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(retryInterval):
		}
	}
}

// Devices also watches claims, device classes, resource slices, and DeviceTaintRules
// if the API server serves them. The caller starts the factory later.
func (w *Watch) Devices(factory informers.SharedInformerFactory, served []string, store *devices.Store, api *Devices) error {
	all := factory.Resource().V1()
	api.mu.Lock()
	api.retry = func(pod types.UID) { w.loop.Do(func() { w.loop.Activate(pod) }) }
	api.mu.Unlock()
	w.loop.Do(store.SetServed)
	err := errors.Join(
		handle(w, all.DeviceClasses().Informer(), stored(w, framework.DeviceClass, store.SetClass, func(o *resourceapi.DeviceClass) { store.RemoveClass(o.Name) })),
		handle(w, all.ResourceSlices().Informer(), stored(w, framework.ResourceSlice, store.SetSlice, func(o *resourceapi.ResourceSlice) { store.RemoveSlice(o.Name) })),
		handle(w, all.ResourceClaims().Informer(), stored(w, framework.ResourceClaim, func(o *resourceapi.ResourceClaim) {
			store.SetClaim(o)
			api.waiting.wake(claimName(o.Namespace, o.Name))
		}, func(o *resourceapi.ResourceClaim) {
			store.RemoveClaim(o)
			api.waiting.wake(claimName(o.Namespace, o.Name))
		})),
	)
	if slices.Contains(served, "devicetaintrules") {
		// A rule changes the taints of slices.
		err = errors.Join(err, handle(w, all.DeviceTaintRules().Informer(), func(old, obj *resourceapi.DeviceTaintRule) {
			w.loop.Do(func() {
				if obj == nil {
					store.RemoveRule(old.Name)
				} else {
					store.SetRule(obj)
				}
				w.loop.ObjectChanged(framework.ResourceSlice, cmp.Or(old, obj), cmp.Or(obj, old))
			})
		}))
	}
	return err
}

// Run carries out what is removed until the context ends.
func (d *Devices) Run(ctx context.Context) {
	for ctx.Err() == nil {
		d.calls.Run()
		select {
		case <-d.calls.Signal:
		case <-ctx.Done():
		}
	}
}

func (*Devices) WithTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

func (d *Devices) Create(ctx context.Context, claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	return d.client.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
}

// Reserve reads the claim again after a conflict.
func (d *Devices) Reserve(ctx context.Context, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult, pod *v1.Pod) (stored *resourceapi.ResourceClaim, err error) {
	free, err := take(ctx, d.writes)
	if err != nil {
		return nil, err
	}
	defer free()
	name := claim.Namespace + "/" + claim.Name
	client := d.client.ResourceV1().ResourceClaims(claim.Namespace)
	next := claim.DeepCopy()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if next == nil {
			if next, err = client.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
				return fmt.Errorf("get updated claim %s after conflict: %w", name, err)
			}
		}
		object := next
		next = nil
		switch {
		case object.DeletionTimestamp != nil || object.UID != claim.UID:
			return fmt.Errorf("claim %s got deleted in the meantime", name)
		case allocation != nil && object.Status.Allocation != nil:
			return fmt.Errorf("claim %s got allocated elsewhere in the meantime", name)
		case allocation == nil && object.Status.Allocation == nil:
			return fmt.Errorf("claim %s got deallocated elsewhere in the meantime", name)
		}
		what := "add reservation to"
		if allocation != nil {
			what = "add allocation and reservation to"
			if !slices.Contains(object.Finalizers, resourceapi.Finalizer) {
				object.Finalizers = append(object.Finalizers, resourceapi.Finalizer)
				if object, err = client.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
					return fmt.Errorf("add finalizer to claim %s: %w", name, err)
				}
			}
			object.Status.Allocation = allocation.DeepCopy()
		}
		if object.Status.Allocation.AllocationTimestamp == nil {
			object.Status.Allocation.AllocationTimestamp = new(metav1.Now())
		}
		object.Status.ReservedFor = append(object.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			APIGroup: v1.GroupName, Resource: "pods", Name: pod.Name, UID: pod.UID,
		})
		if stored, err = client.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("%s claim %s: %w", what, name, err)
		}
		return nil
	})
	return stored, err
}

func (d *Devices) SetExtended(ctx context.Context, pod *v1.Pod, status *v1.PodExtendedResourceClaimStatus) error {
	body, err := statusPatch(pod.UID, podStatus{ExtendedResourceClaimStatus: status})
	if err == nil {
		_, err = d.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	}
	return err
}

func (d *Devices) Await(ctx context.Context, pod *v1.Pod, node string, timeout time.Duration, names []types.NamespacedName, done func(time.Time, []*resourceapi.ResourceClaim) (bool, error)) (err error) {
	d.record(cycle.Event{
		Regarding: pod, Type: v1.EventTypeNormal, Reason: "BindingConditionsPending", Action: "Scheduling",
		Note: "waiting for binding conditions for device on node " + node, Controller: pod.Spec.SchedulerName,
	})
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w: %w", devices.ErrTimeout, context.DeadlineExceeded))
	defer cancel()
	tick := time.NewTicker(readinessInterval)
	defer tick.Stop()
	by := newWaiter()
	defer d.waiting.remove(by)
	for _, name := range names {
		d.waiting.add(by, name)
	}
	begin := time.Now()
	var claims []*resourceapi.ResourceClaim
	defer func() { d.metrics.waited(pod.Spec.SchedulerName, claims, time.Since(begin), err) }()
	for {
		if claims, err = d.view(names); err != nil {
			return err
		}
		if is, err := done(time.Now(), claims); is || err != nil {
			return err
		}
		select {
		case <-by.changed:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// view are the claims of the informer.
func (d *Devices) view(names []types.NamespacedName) (claims []*resourceapi.ResourceClaim, err error) {
	for _, name := range names {
		claim, err := d.informers.Resource().V1().ResourceClaims().Lister().ResourceClaims(name.Namespace).Get(name.Name)
		if err != nil {
			return nil, err
		}
		claims = append(claims, claim)
	}
	return claims, nil
}

func (d *Devices) Deallocate(claim *resourceapi.ResourceClaim, pod *v1.Pod) {
	d.later("deallocate", claim, pod, func(ctx context.Context) error {
		object := claim.DeepCopy()
		object.Status.ReservedFor, object.Status.Allocation, object.Status.Devices = nil, nil, nil
		_, err := d.client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

// Release removes the reservation by the uid of the pod, from any version of the
// claim.
func (d *Devices) Release(claim *resourceapi.ResourceClaim, pod *v1.Pod) {
	d.later("unreserve", claim, pod, func(ctx context.Context) error {
		body := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"reservedFor":[{"$patch":"delete","uid":%q}]}}`, claim.UID, pod.UID)
		_, err := d.client.ResourceV1().ResourceClaims(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
		return err
	})
}

// Delete removes the finalizer first.
func (d *Devices) Delete(claim *resourceapi.ResourceClaim, pod *v1.Pod) {
	d.later("delete", claim, pod, func(ctx context.Context) error {
		client := d.client.ResourceV1().ResourceClaims(claim.Namespace)
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			object, err := client.Get(ctx, claim.Name, metav1.GetOptions{})
			if err != nil || object.UID != claim.UID || !slices.Contains(object.Finalizers, resourceapi.Finalizer) {
				return err
			}
			object.Finalizers = slices.DeleteFunc(object.Finalizers, func(f string) bool { return f == resourceapi.Finalizer })
			_, err = client.Update(ctx, object, metav1.UpdateOptions{})
			return err
		})
		if err == nil {
			err = client.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
		}
		if gone(err) {
			return nil
		}
		return err
	})
}

// later queues a write. If it fails, the pod is tried again after a pause.
func (d *Devices) later(what string, claim *resourceapi.ResourceClaim, pod *v1.Pod, write func(context.Context) error) {
	d.calls.Add(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := write(ctx)
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		d.log.Warn("claim is not updated", "update", what, "claim", claim.Namespace+"/"+claim.Name, "pod", pod.Namespace+"/"+pod.Name, "error", err)
		d.mu.Lock()
		retry := d.retry
		d.mu.Unlock()
		time.AfterFunc(retryInterval, func() { retry(pod.UID) })
	})
}
