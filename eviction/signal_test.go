package eviction_test

import (
	"testing"

	"github.com/evictd/evictd/eviction"
)

func TestAnAmountIsRoundedInTheUnitOfAnother(t *testing.T) {
	const mi, gi = int64(1) << 20, int64(1) << 30
	for _, c := range []struct {
		signal        eviction.Signal
		other, amount int64
		want          string
	}{
		{eviction.MemoryAvailable, 500 * mi, 542323 * 1024, "529Mi"},
		{eviction.MemoryAvailable, 500 * mi, 3 * gi, "3072Mi"},
		{eviction.MemoryAvailable, 529 * mi, gi, "1024Mi"},
		{eviction.MemoryAvailable, 2 * gi, gi + gi/2, "1.5Gi"},
		{eviction.MemoryAvailable, gi, 0, "0Gi"},
		{eviction.MemoryAvailable, 100, gi, "1073741824"},
		{eviction.PIDAvailable, 3000, 12_345, "12.3k"},
	} {
		if got := c.signal.RoundedAs(c.other, c.amount); got != c.want {
			t.Errorf("%v, %d as %d: %s, want %s", c.signal, c.amount, c.other, got, c.want)
		}
	}
}
