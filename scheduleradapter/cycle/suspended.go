package cycle

import (
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// suspendedAttempt waits for an extender. The loop handles events meanwhile, and attempts
// no other pod.
type suspendedAttempt struct {
	entry    *queue.Entry
	begin    time.Time
	answered bool
}

// suspend keeps the attempt that ScheduleOne has suspended.
func (l *Loop) suspend(e *queue.Entry, begin time.Time) {
	s := &suspendedAttempt{entry: e, begin: begin}
	l.suspended = s
	answered, _ := l.cycle.Suspended()
	l.goroutines.Go(func() {
		answered()
		l.Do(func() { s.answered = true })
	})
}

// resume runs the suspended attempt again if all responses are there. It ends the attempt
// of a pod that is bound or deleted, and of a PodGroup that is deleted or has no such pods
// left. It returns false while the attempt waits.
func (l *Loop) resume(now time.Time) bool {
	s := l.suspended
	e, isGroup := s.entry, s.entry.IsPodGroup()
	switch {
	case isGroup && (e.PodGroup() == nil || len(e.Members) == 0):
		l.suspended = nil
		l.cycle.EndAttempt()
		l.Queue.EndPodGroup(now, e, framework.Success)
	case !isGroup && e.Place() == queue.Nowhere:
		l.suspended = nil
		l.cycle.EndAttempt()
	case s.answered:
		l.suspended = nil
		l.cycle.Resume()
		l.attempt(now, e, s.begin)
	default:
		return false
	}
	return true
}
