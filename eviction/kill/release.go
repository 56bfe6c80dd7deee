package kill

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// process_mrelease(2) returns EAGAIN while the kernel uses the address space.
const (
	releaseTries = 20
	releasePause = 2 * time.Millisecond
	// releaseTimeout bounds how long the result of a pod waits for running
	// process_mrelease(2) calls: such a call holds the address space of a process that
	// has exited.
	releaseTimeout = time.Second
)

// pendingReleases counts the releases of one pod that are queued or running.
type pendingReleases struct {
	count atomic.Int32
	none  chan struct{} // receives when count may be zero
}

func (r *pendingReleases) done() {
	if r.count.Add(-1) == 0 {
		select {
		case r.none <- struct{}{}:
		default:
		}
	}
}

// release is a process whose memory is to be released.
type release struct {
	process process
	of      *pendingReleases
}

// release queues killed processes for process_mrelease(2). If the queue is full the
// others release their memory by themselves as they exit.
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
				k.log.Info("process_mrelease is not available: killed processes release their memory as they exit", "error", err)
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
