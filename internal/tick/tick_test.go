package tick

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestIntervalsThatDivideOneAnotherComeDueTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, start := range []time.Duration{0, time.Nanosecond, 3 * time.Second, 9999 * time.Millisecond} {
			time.Sleep(start)
			last := time.Now().Truncate(time.Minute)
			for _, interval := range []time.Duration{10 * time.Second, 20 * time.Second, time.Minute} {
				begun := time.Now()
				time.Sleep(Until(interval))
				now := time.Now()
				if !now.Truncate(interval).Equal(now) || now.Sub(begun) > interval+interval/leastShare {
					t.Errorf("an interval of %v came due after %v, at %v", interval, now.Sub(begun), now.Sub(last))
				}
			}
		}
	})
}

func TestUntil(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const interval = 16 * time.Second
	multiple := day.Truncate(interval)
	for _, c := range []struct{ now, left time.Duration }{
		{0, interval},
		{time.Nanosecond, interval - time.Nanosecond},
		{15 * time.Second, time.Second},
		{15*time.Second + 1, interval + time.Second - 1}, // a timer that fires too early fires once
	} {
		if left := until(multiple.Add(c.now), interval); left != c.left {
			t.Errorf("%v after a multiple of %v: %v are left, want %v", c.now, interval, left, c.left)
		}
	}
}
