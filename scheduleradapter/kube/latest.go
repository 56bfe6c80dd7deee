package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// writeAttempts bounds the requests for an update that the API server rejects.
const writeAttempts = 8

// latest writes the latest update of each object. One request per object runs at a
// time.
type latest[T any] struct {
	// merge joins an update that is not written yet and the next of the same object.
	merge func(older, newer T) T
	// write returns the resourceVersion of the object that has the update.
	write func(context.Context, T) (version string, err error)
	// ended is called once for each update; the error says that it is not written.
	ended func(update T, version string, err error)
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu      sync.Mutex
	pending map[types.UID]T
}

func newLatest[T any](merge func(older, newer T) T, write func(context.Context, T) (string, error), ended func(T, string, error)) *latest[T] {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)
	return &latest[T]{merge: merge, write: write, ended: ended, queue: workqueue.NewTypedRateLimitingQueue(limit), pending: map[types.UID]T{}}
}

func (l *latest[T]) add(uid types.UID, update T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if older, found := l.pending[uid]; found {
		update = l.merge(older, update)
	}
	l.pending[uid] = update
	l.queue.Add(uid)
}

// run writes updates, so many at a time, until the context ends.
func (l *latest[T]) run(ctx context.Context, writers int) {
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	running.Wait()
}

// next writes one update; false: the context has ended.
func (l *latest[T]) next(ctx context.Context) bool {
	uid, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(uid)
	l.mu.Lock()
	update, found := l.pending[uid]
	delete(l.pending, uid)
	l.mu.Unlock()
	if !found {
		return true
	}
	version, err := l.write(ctx, update)
	switch {
	case err == nil || gone(err) || ctx.Err() != nil:
		l.queue.Forget(uid)
		l.ended(update, version, nil)
	case l.queue.NumRequeues(uid) >= writeAttempts:
		l.queue.Forget(uid)
		l.ended(update, "", err)
	default:
		l.mu.Lock()
		if newer, found := l.pending[uid]; found {
			update = l.merge(update, newer)
		}
		l.pending[uid] = update
		l.mu.Unlock()
		l.queue.AddRateLimited(uid)
	}
	return true
}
