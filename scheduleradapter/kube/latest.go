package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

const writeAttempts = 8 // writes that the API server rejects

// latest writes the latest value of each object; one write per object runs at a time.
// Writes that fail are repeated, at most writeAttempts times.
type latest[T any] struct {
	write func(context.Context, T) error
	// merge is the value of an object whose older value is not written; nil: the newer one.
	merge  func(older, newer T) T
	failed func(T, error) // of the last attempt
	queue  workqueue.TypedRateLimitingInterface[types.UID]

	mu      sync.Mutex
	pending map[types.UID]T
}

func newLatest[T any](write func(context.Context, T) error) *latest[T] {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)
	return &latest[T]{write: write, queue: workqueue.NewTypedRateLimitingQueue(limit), pending: map[types.UID]T{}}
}

func (l *latest[T]) add(uid types.UID, value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if older, found := l.pending[uid]; found && l.merge != nil {
		value = l.merge(older, value)
	}
	l.pending[uid] = value
	l.queue.Add(uid)
}

// run writes with so many goroutines until the context ends.
func (l *latest[T]) run(ctx context.Context, writers int) {
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	all.Wait()
}

// next writes one value; false: the context has ended.
func (l *latest[T]) next(ctx context.Context) bool {
	uid, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(uid)
	l.mu.Lock()
	value, found := l.pending[uid]
	delete(l.pending, uid)
	l.mu.Unlock()
	if !found {
		return true
	}
	switch err := l.write(ctx, value); {
	case err == nil:
		l.queue.Forget(uid)
	case l.queue.NumRequeues(uid) >= writeAttempts:
		l.queue.Forget(uid)
		l.failed(value, err)
	default:
		l.again(uid, value)
	}
	return true
}

// again returns a value that is not written, unless there is a newer one.
func (l *latest[T]) again(uid types.UID, value T) {
	l.mu.Lock()
	newer, found := l.pending[uid]
	switch {
	case !found:
	case l.merge != nil:
		value = l.merge(value, newer)
	default:
		value = newer
	}
	l.pending[uid] = value
	l.mu.Unlock()
	l.queue.AddRateLimited(uid)
}
