package kill

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel may be busy with the memory of a dying process for a moment.
const (
	releaseTries = 20
	releasePause = 2 * time.Millisecond
	// releaseTimeout is how long the end of a pod is not told while memory of its
	// processes is being taken back: who takes it holds it, though they have ended.
	releaseTimeout = time.Second
)

// pendingReleases are the releases of one pod that are not over.
type pendingReleases struct {
	count atomic.Int32
	none  chan struct{} // receives when left may have come to zero
}

func (r *pendingReleases) done() {
	if r.count.Add(-1) == 0 {
		select {
		case r.none <- struct{}{}:
		default:
		}
	}
}

// release is the memory of one process that is to be taken back.
type release struct {
	process process
	of      *pendingReleases
}

// release has the memory of killed processes taken back, and counts them down as
// it is. Those for whom there is no room in the queue give theirs back themselves.
func (k *Killer) release(killed map[int]process, of *pendingReleases) {
	if k.cannotRelease.Load() {
		return
	}
	for _, process := range killed {
		of.count.Add(1)
		select {
		case k.releases <- release{process, of}:
		default:
			of.done()
			return
		}
	}
}

func (k *Killer) releaseAll(ctx context.Context) {
	for {
		select {
		case r := <-k.releases:
			k.releaseOne(ctx, r.process)
			r.of.done()
		case <-ctx.Done():
			return
		}
	}
}

func (k *Killer) releaseOne(ctx context.Context, process process) {
	for range releaseTries {
		err := process.release()
		switch {
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			if !k.cannotRelease.Swap(true) {
				k.log.Info("killed processes give their memory back at their own pace", "error", err)
			}
			return
		case !errors.Is(err, unix.EAGAIN):
			return
		}
		select {
		case <-time.After(releasePause):
		case <-ctx.Done():
			return
		}
	}
}
