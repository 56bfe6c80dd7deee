package queue

import "time"

const (
	// window rounds the ends of backoffs, so that pods which failed within the
	// same second come back in the order of their priorities.
	window = time.Second
	// flushPeriod is how often pods that have waited long are looked for,
	// counted from the queue's start.
	flushPeriod = 30 * time.Second
)

// backoff is how long a pod waits after n failures in a row: the initial
// duration doubled n-1 times, at most the longest.
func backoff(initial, longest time.Duration, n int) time.Duration {
	if n <= 0 {
		return 0
	}
	if n > 63 || initial > longest>>(n-1) {
		return longest
	}
	return initial << (n - 1)
}

// expiry is when the backoff of a pod that failed now ends; zero for none. An
// error counts apart from rejections: it is soon over or it is ours.
func (q *Queue) backoffExpiration(e *Entry, now time.Time) time.Time {
	if q.cfg.MaxBackoff == 0 {
		return time.Time{}
	}
	n := e.Unsuccessful
	if e.Errors > 0 {
		n = e.Errors
	}
	return now.Add(backoff(q.cfg.InitialBackoff, q.cfg.MaxBackoff, n)).Truncate(window)
}

// backsOff says whether the pod still waits: through the whole window in which
// its backoff ends.
func (e *Entry) isBackingOff(now time.Time) bool {
	return !e.Backoff.IsZero() && !e.Backoff.Before(now.Truncate(window))
}

// lastFlush is the latest instant, up to now, at which pods that have waited
// long are looked for.
func (q *Queue) lastFlush(now time.Time) time.Time {
	return q.start.Add(now.Sub(q.start) / flushPeriod * flushPeriod)
}

// overdue says whether the pod has waited too long at a flush.
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
