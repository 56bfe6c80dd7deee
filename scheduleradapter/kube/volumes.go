package kube

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
)

// Volumes implements volumes.API.
type Volumes struct {
	client  kubernetes.Interface
	claims  listers.PersistentVolumeClaimLister
	volumes listers.PersistentVolumeLister

	waiting waiting
}

// NewVolumes reads the caches of claims and volumes.
func NewVolumes(client kubernetes.Interface, claims listers.PersistentVolumeClaimLister, all listers.PersistentVolumeLister) *Volumes {
	return &Volumes{client: client, claims: claims, volumes: all}
}

func (a *Volumes) UpdateVolume(ctx context.Context, object *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	return a.client.CoreV1().PersistentVolumes().Update(ctx, object, metav1.UpdateOptions{})
}

func (a *Volumes) UpdateClaim(ctx context.Context, object *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return a.client.CoreV1().PersistentVolumeClaims(object.Namespace).Update(ctx, object, metav1.UpdateOptions{})
}

// Await calls done now, and after each change of a claim or volume that it has read,
// until it returns true.
func (a *Volumes) Await(ctx context.Context, timeout time.Duration, done func(volumes.View) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not bound within %s", timeout))
	defer cancel()
	v := view{a, newWaiter()}
	defer a.waiting.remove(v.waiter)
	for {
		if is, err := done(v); is || err != nil {
			return err
		}
		select {
		case <-v.waiter.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// claimChanged and volumeChanged wake the calls of Await that have read the object.
func (a *Volumes) claimChanged(namespace, name string) { a.waiting.wake(claimName(namespace, name)) }

func (a *Volumes) volumeChanged(name string) { a.waiting.wake(volumeName(name)) }

func claimName(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// volumeName differs from the names of all claims, which have a namespace.
func volumeName(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// view waits for changes of what is read.
type view struct {
	*Volumes
	waiter *waiter
}

func (v view) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	v.waiting.add(v.waiter, claimName(namespace, name))
	object, err := v.claims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return nil
	}
	return object
}

func (v view) Volume(name string) *v1.PersistentVolume {
	v.waiting.add(v.waiter, volumeName(name))
	object, err := v.volumes.Get(name)
	if err != nil {
		return nil
	}
	return object
}
