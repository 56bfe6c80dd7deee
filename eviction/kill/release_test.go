package kill

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

func TestReleaseIsTriedAgainWhileTheKernelIsBusyAndGivenUpWhereItMayNot(t *testing.T) {
	for name, test := range map[string]struct {
		errors []error
		calls  int
		off    bool
	}{
		"busy, then done":  {[]error{unix.EAGAIN, unix.EAGAIN, nil}, 3, false},
		"busy for ever":    {slices.Repeat([]error{unix.EAGAIN}, 100), releaseTries, false},
		"shared memory":    {[]error{unix.EINVAL}, 1, false},
		"an old kernel":    {[]error{unix.ENOSYS}, 1, true},
		"not permitted":    {[]error{unix.EPERM}, 1, true},
		"gone in any case": {[]error{os.ErrProcessDone}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := New(Config{}, slog.New(slog.DiscardHandler))
				p := &releasing{errors: test.errors}
				k.releaseOne(t.Context(), p)
				if p.calls != test.calls || k.cannotRelease.Load() != test.off {
					t.Errorf("%d calls, given up: %v; want %d, %v", p.calls, k.cannotRelease.Load(), test.calls, test.off)
				}
				var of pendingReleases
				k.release(map[int]process{1: p}, &of)
				if queued := len(k.releases) == 1; queued == test.off || queued != (of.count.Load() == 1) {
					t.Errorf("the next process was queued: %v, counted %d times", queued, of.count.Load())
				}
			})
		})
	}
}

type releasing struct {
	fakeProcess
	errors []error
	calls  int
}

func (r *releasing) release() error {
	r.calls++
	return fmt.Errorf("release: %w", r.errors[r.calls-1])
}
