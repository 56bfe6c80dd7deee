package kube

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
)

// TestAnEventWakesTheBindingsThatWaitForItsObject: of 100 binding cycles that wait, an event
// of a claim or volume wakes those that have read it.
func TestAnEventWakesTheBindingsThatWaitForItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		claims, all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers), cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
		v := NewVolumes(nil, listers.NewPersistentVolumeClaimLister(claims), listers.NewPersistentVolumeLister(all))
		claim := func(i int, volume string) {
			c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("c", i)}}
			c.Spec.VolumeName = volume
			if err := claims.Add(c); err != nil {
				t.Error(err)
			}
			v.claimChanged("ns", c.Name)
		}
		var calls atomic.Int32
		var waiting sync.WaitGroup
		for i := range 100 {
			claim(i, "")
			waiting.Go(func() {
				err := v.Await(t.Context(), time.Hour, func(view volumes.View) (bool, error) {
					calls.Add(1)
					c := view.Claim("ns", fmt.Sprint("c", i))
					return c != nil && view.Volume(c.Spec.VolumeName) != nil, nil
				})
				if (i == 0) != (err == nil) { // the others end with the timeout
					t.Errorf("claim %d: %v", i, err)
				}
			})
		}
		step := func(what string, want int32) {
			t.Helper()
			synctest.Wait()
			if n := calls.Swap(0); n != want {
				t.Errorf("%s: the condition is evaluated %d times, want %d", what, n, want)
			}
		}
		step("start", 100)
		claim(0, "v0")
		step("a claim", 1)
		v.volumeChanged("v0")
		step("a volume that is not there yet", 1)
		v.claimChanged("other", "c0")
		v.volumeChanged("v1")
		step("objects that no binding cycle waits for", 0)
		require.NoError(t, all.Add(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v0"}}))
		v.volumeChanged("v0")
		step("its volume", 1)
		time.Sleep(time.Hour)
		waiting.Wait()
		if n := len(v.waiting.on); n > 0 {
			t.Errorf("%d objects have waiters after the end", n)
		}
	})
}

// BenchmarkVolumeEvent is an event of a claim while 10,000 binding cycles wait, each for a claim
// and its volume, until the cycle that waits for this claim has evaluated its condition.
func BenchmarkVolumeEvent(b *testing.B) {
	const bindings = 10_000
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	claims, all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers), cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	v := NewVolumes(nil, listers.NewPersistentVolumeClaimLister(claims), listers.NewPersistentVolumeLister(all))
	ctx, stop := context.WithCancel(b.Context())
	evaluated := make(chan struct{}, bindings)
	var waiting sync.WaitGroup
	for i := range bindings {
		c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("c", i)}}
		c.Spec.VolumeName = fmt.Sprint("v", i)
		require.NoError(b, claims.Add(c))
		waiting.Go(func() {
			_ = v.Await(ctx, time.Hour, func(view volumes.View) (bool, error) { // the benchmark ends it
				found := view.Volume(view.Claim("ns", c.Name).Spec.VolumeName) != nil
				evaluated <- struct{}{}
				return found, nil
			})
		})
	}
	for range bindings {
		<-evaluated
	}
	for i := 0; b.Loop(); i++ {
		v.claimChanged("ns", fmt.Sprint("c", i%bindings))
		<-evaluated
	}
	b.StopTimer()
	stop()
	waiting.Wait()
}
