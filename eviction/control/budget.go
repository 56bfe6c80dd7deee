package control

import "time"

const (
	// The loop uses a cpuShare-th of a processor at most, and cpuBurst beyond it. That is less than
	// the budget of its thread, which loses its realtime priority above that.
	cpuShare = 3
	cpuBurst = 100 * time.Millisecond
)

// budget bounds the processor time of polls and notifications: on a slow machine one pass takes as
// long as the poll sleeps near a threshold.
type budget struct {
	cpuTime func() time.Duration // see Ports
	used    time.Duration
	at      time.Time
	debt    time.Duration // processor time beyond the share, as of at
}

// charge counts the processor time that was used since the last call, and returns when the next
// pass of a poll or a notification may begin.
func (b *budget) charge(now time.Time) (next time.Time) {
	if b.cpuTime == nil {
		return now
	}
	used := b.cpuTime()
	b.debt = max(0, b.debt+used-b.used-now.Sub(b.at)/cpuShare)
	b.used, b.at = used, now
	return now.Add(cpuShare * max(0, b.debt-cpuBurst))
}
