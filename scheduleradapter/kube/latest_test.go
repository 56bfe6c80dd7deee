package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestUpdatesOfAnObjectAreMergedWhileNoneIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests []string
		var l *latest[string]
		l = newLatest(func(_ context.Context, update string) error {
			requests = append(requests, update)
			if len(requests) == 1 { // while the request runs
				l.add("uid", "c")
				return errors.New("busy")
			}
			return nil
		})
		l.merge = func(older, newer string) string { return older + newer }
		l.add("uid", "a")
		l.add("uid", "b")
		ctx, stop := context.WithCancel(t.Context())
		go l.run(ctx, 1)
		time.Sleep(time.Second) // of the bubble: the delay before the second attempt
		stop()
		synctest.Wait()
		if !slices.Equal(requests, []string{"ab", "abc"}) {
			t.Errorf("requests %q", requests)
		}
	})
}

func TestAnUpdateThatIsAlwaysRejectedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, ended := 0, make(chan error)
		rejected := errors.New("rejected")
		l := newLatest(func(context.Context, string) error { requests++; return rejected })
		l.failed = func(_ string, err error) { ended <- err }
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
