package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
)

// Volumes implements volumes.API.
type Volumes struct {
	client  kubernetes.Interface
	claims  listers.PersistentVolumeClaimLister
	volumes listers.PersistentVolumeLister

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// NewVolumes reads the caches of claims and volumes.
func NewVolumes(client kubernetes.Interface, claims listers.PersistentVolumeClaimLister, all listers.PersistentVolumeLister) *Volumes {
	return &Volumes{client: client, claims: claims, volumes: all, changed: make(chan struct{})}
}

func (a *Volumes) UpdateVolume(ctx context.Context, object *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	return a.client.CoreV1().PersistentVolumes().Update(ctx, object, metav1.UpdateOptions{})
}

func (a *Volumes) UpdateClaim(ctx context.Context, object *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return a.client.CoreV1().PersistentVolumeClaims(object.Namespace).Update(ctx, object, metav1.UpdateOptions{})
}

// Await calls done now and after each change of a claim or volume, until it returns
// true.
func (a *Volumes) Await(ctx context.Context, timeout time.Duration, done func(volumes.View) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not bound within %s", timeout))
	defer cancel()
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		if is, err := done(view{a}); is || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// notify wakes Await after a change.
func (a *Volumes) notify() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.changed)
	a.changed = make(chan struct{})
}

type view struct{ *Volumes }

func (v view) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	object, err := v.claims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return nil
	}
	return object
}

func (v view) Volume(name string) *v1.PersistentVolume {
	object, err := v.volumes.Get(name)
	if err != nil {
		return nil
	}
	return object
}
