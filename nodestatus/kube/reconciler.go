package kube

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// attemptTimeout bounds one attempt at a chore.
	attemptTimeout = 10 * time.Second
	// A chore that failed is tried again after firstRetry, and then each time
	// after twice as long, up to lastRetry, or what the API server asks for.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// forbiddenRetry is for what the API server does not let us do.
	forbiddenRetry = 30 * time.Second
)

// reconciler is done when it is woken and at the latest after its period, zero
// meaning never; where it fails, again, less and less often.
type reconciler struct {
	name      string
	every     time.Duration
	reconcile func(context.Context) error
	wake      chan struct{}
}

func newReconciler(name string, every time.Duration, do func(context.Context) error) *reconciler {
	return &reconciler{name: name, every: every, reconcile: do, wake: make(chan struct{}, 1)}
}

// trigger asks for the chore, now or after the one in hand; it never waits.
func (c *reconciler) trigger() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run does the chore until ctx ends. It logs the first of failures in a row.
func (c *reconciler) run(ctx context.Context, log *slog.Logger) {
	var failures uint
	for {
		if !c.wait(ctx, failures > 0) {
			return
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := c.reconcile(attempt)
		cancel()
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		if failures == 0 {
			log.Warn("the API server could not be told", "what", c.name, "error", err)
		}
		if sleep(ctx, retryAfter(err, failures)) != nil {
			return
		}
		failures++
	}
}

// wait returns when the chore is due, false when ctx has ended.
func (c *reconciler) wait(ctx context.Context, failed bool) bool {
	if failed {
		return ctx.Err() == nil
	}
	var tick <-chan time.Time
	if c.every > 0 {
		timer := time.NewTimer(c.every)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-c.wake:
	case <-tick:
	}
	return true
}

func retryAfter(err error, failures uint) time.Duration {
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if apierrors.IsForbidden(err) {
		return forbiddenRetry
	}
	return min(firstRetry<<min(failures, 10), lastRetry)
}

// sleep returns ctx's error where that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
