// Package tick has regular work come due at the same instants, so that an idle process wakes once
// for all of it. It starts nothing.
package tick

import "time"

// leastShare is the least wait, as a part of the interval: a clock that is slewed may have a timer
// fire just before the instant that it was set for.
const leastShare = 16

// Until is the time until the next multiple of an interval on the host's clock, at least a sixteenth
// of the interval. Intervals that divide one another come due together. The interval is positive.
func Until(interval time.Duration) time.Duration {
	return until(time.Now(), interval)
}

func until(now time.Time, interval time.Duration) time.Duration {
	left := now.Truncate(interval).Add(interval).Sub(now)
	if left < interval/leastShare {
		left += interval
	}
	return left
}
