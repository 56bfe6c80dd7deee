package queue

import (
	"math"
	"testing"
	"time"
)

func TestBackoffDoublesToTheLongestAndNeverOverflows(t *testing.T) {
	for _, c := range []struct {
		initial, longest time.Duration
		n                int
		want             time.Duration
	}{
		{time.Second, 10 * time.Second, 0, 0},
		{time.Second, 10 * time.Second, 4, 8 * time.Second},
		{time.Second, 10 * time.Second, 5, 10 * time.Second},
		{time.Second, 10 * time.Second, 64, 10 * time.Second},
		{time.Second, 10 * time.Second, math.MaxInt, 10 * time.Second},
		{1, math.MaxInt64, 62, 1 << 61},
		{1, math.MaxInt64, 63, 1 << 62},
		{1, math.MaxInt64, 64, math.MaxInt64},
		{3, math.MaxInt64, 63, math.MaxInt64},
	} {
		if got := backoff(c.initial, c.longest, c.n); got != c.want {
			t.Errorf("%d failures, %v to %v: %v, not %v", c.n, c.initial, c.longest, got, c.want)
		}
	}
}
