package queue

import "time"

const (
	// window: backoffs end at full seconds, so that pods that failed within the same
	// second are popped by priority.
	window = time.Second
	// flushPeriod is the interval at which pods that exceed Config.MaxUnschedulable
	// are moved, from the queue's start.
	flushPeriod = 30 * time.Second
)

// backoff is the duration after n consecutive failures: initial doubled n-1 times,
// at most longest.
func backoff(initial, longest time.Duration, n int) time.Duration {
	if n <= 0 {
		return 0
	}
	if n > 63 || initial > longest>>(n-1) {
		return longest
	}
	return initial << (n - 1)
}

// backoffExpiration is the end of the backoff of a pod that failed now; zero: no
// backoff. Errors and rejections are counted separately.
func (q *Queue) backoffExpiration(e *Entry, now time.Time) time.Time {
	if q.cfg.MaxBackoff == 0 {
		return time.Time{}
	}
	n := e.Unsuccessful
	if e.Errors > 0 {
		n = e.Errors
	}
	return now.Add(backoff(q.cfg.InitialBackoff, q.longestBackoff(e), n)).Truncate(window)
}

// isBackingOff reports whether the pod is in backoff. The window in which the
// backoff ends belongs to it.
func (e *Entry) isBackingOff(now time.Time) bool {
	return !e.Backoff.IsZero() && !e.Backoff.Before(now.Truncate(window))
}

// lastFlush is the latest flush at or before now.
func (q *Queue) lastFlush(now time.Time) time.Time {
	return q.start.Add(now.Sub(q.start) / flushPeriod * flushPeriod)
}

// overdue reports whether the pod exceeds MaxUnschedulable at a flush.
func (q *Queue) overdue(e *Entry, flush time.Time) bool {
	return flush.Sub(e.Timestamp) > q.cfg.MaxUnschedulable
}

// nextFlush is the first flush that finds the pod overdue.
func (q *Queue) nextFlush(e *Entry) time.Time {
	at := q.lastFlush(e.Timestamp.Add(q.cfg.MaxUnschedulable)).Add(flushPeriod)
	if next := q.flushed.Add(flushPeriod); at.Before(next) {
		return next
	}
	return at
}
