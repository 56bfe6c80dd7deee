package kube

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// attemptTimeout bounds one attempt, victimTimeout one to report evicted pods: its request is
	// answered before those that the kubelet sends later, which may complete a Job. client-go closes
	// a connection that has been silent for 45 s.
	attemptTimeout = 10 * time.Second
	victimTimeout  = time.Minute
	// A failed attempt is repeated after firstRetry, then after twice as long each
	// time, up to lastRetry, or after the Retry-After of the API server.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// unansweredVictims is the longest interval between attempts to report evicted pods that the API
	// server does not answer. A kubelet tries every 10 s.
	unansweredVictims = 250 * time.Millisecond
	// After 403 Forbidden the first interval is firstForbidden, since an API server that has
	// just started may not know any rights yet, and the longest one is longestForbidden.
	firstForbidden   = time.Second
	longestForbidden = 30 * time.Second
)

// failure is a kind of failed attempt, by what the API server has answered.
type failure uint8

const (
	unanswered failure = iota
	forbidden          // 403
	refused            // any other error of the API server
	failureKinds
)

// failureOf is the kind of an error of client-go.
func failureOf(err error) failure {
	if apierrors.IsForbidden(err) {
		return forbidden
	}
	if answer := apierrors.APIStatus(nil); errors.As(err, &answer) {
		return refused
	}
	return unanswered
}

// reconciler calls a function when it is triggered and at the latest after its period,
// zero meaning never. It repeats a failed call with an interval that grows with the failures
// of the same kind since the last success.
type reconciler struct {
	name      string
	every     time.Duration
	reconcile func(context.Context) error
	wake      chan struct{}
	// longestForbidden is the longest interval after 403 Forbidden, and longestUnanswered after an
	// attempt that the API server has not answered.
	longestForbidden, longestUnanswered time.Duration
	// timeout bounds one attempt.
	timeout time.Duration
}

func newReconciler(name string, every time.Duration, do func(context.Context) error) *reconciler {
	return &reconciler{
		name: name, every: every, reconcile: do, wake: make(chan struct{}, 1),
		longestForbidden: longestForbidden, longestUnanswered: lastRetry, timeout: attemptTimeout,
	}
}

// trigger asks for a call, now or after the running one. It does not block.
func (c *reconciler) trigger() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run reconciles until ctx ends. It logs the first of several failures in a row.
func (c *reconciler) run(ctx context.Context, log *slog.Logger) {
	var failures [failureKinds]uint
	for {
		failed := failures != [failureKinds]uint{}
		if !c.wait(ctx, failed) {
			return
		}
		attempt, cancel := context.WithTimeout(ctx, c.timeout)
		err := c.reconcile(attempt)
		cancel()
		if err == nil || ctx.Err() != nil {
			clear(failures[:])
			continue
		}
		if !failed {
			log.Warn("could not write to the API server", "what", c.name, "error", err)
		}
		kind := failureOf(err)
		if sleep(ctx, c.retryAfter(err, kind, failures[kind])) != nil {
			return
		}
		failures[kind]++
	}
}

// wait returns true when a call is due, false when ctx has ended.
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

// retryAfter is the interval after a failure that followed failures of the same kind.
func (c *reconciler) retryAfter(err error, kind failure, failures uint) time.Duration {
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	first := [failureKinds]time.Duration{unanswered: firstRetry, forbidden: firstForbidden, refused: firstRetry}
	longest := [failureKinds]time.Duration{unanswered: c.longestUnanswered, forbidden: c.longestForbidden, refused: lastRetry}
	return min(first[kind]<<min(failures, 10), longest[kind])
}

// sleep waits for d, or returns the error of ctx where that ends before.
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
