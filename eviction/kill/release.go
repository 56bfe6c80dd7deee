package kill

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel may be busy with the memory of a dying process for a moment.
const (
	releaseTries = 20
	releasePause = 2 * time.Millisecond
)

// release has the memory of killed processes taken back. Those for whom there is
// no room in the queue give theirs back themselves.
func (k *Killer) release(killed map[int]process) {
	if k.cannotRelease.Load() {
		return
	}
	for _, process := range killed {
		select {
		case k.releases <- process:
		default:
			return
		}
	}
}

func (k *Killer) releaseAll(ctx context.Context) {
	for {
		select {
		case process := <-k.releases:
			k.releaseOne(ctx, process)
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
