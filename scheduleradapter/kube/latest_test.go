package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestUpdatesOfAnObjectAreMergedWhileNoneIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests, ended []string
		var l *latest[string]
		l = newLatest(func(older, newer string) string { return older + newer }, func(_ context.Context, update string) (string, error) {
			requests = append(requests, update)
			if len(requests) == 1 { // while the request runs
				l.add("uid", "c")
				return "", errors.New("busy")
			}
			return "7", nil
		}, func(update, version string, err error) { ended = append(ended, update+version) })
		l.add("uid", "a")
		l.add("uid", "b")
		ctx, stop := context.WithCancel(t.Context())
		go l.run(ctx, 1)
		synctest.Wait()
		stop()
		synctest.Wait()
		if !slices.Equal(requests, []string{"ab", "abc"}) || !slices.Equal(ended, []string{"abc7"}) {
			t.Errorf("requests %q, ended %q", requests, ended)
		}
	})
}

func TestAnUpdateThatIsAlwaysRejectedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, ended := 0, make(chan error)
		rejected := errors.New("rejected")
		l := newLatest(func(_, newer string) string { return newer }, func(context.Context, string) (string, error) { requests++; return "", rejected },
			func(_, _ string, err error) { ended <- err })
		l.add("uid", "a")
		ctx, stop := context.WithCancel(t.Context())
		go l.run(ctx, 1)
		if err := <-ended; err != rejected || requests != writeAttempts+1 {
			t.Errorf("ended after %d requests with %v", requests, err)
		}
		stop()
		synctest.Wait()
	})
}
