package eviction_test

import (
	"testing"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

func TestAReasonIsRoundedUnlessThatHidesWhatDecides(t *testing.T) {
	const ki = 1024
	pod := func(name string, usage, request int64) eviction.Candidate {
		return eviction.Candidate{
			Pod:   &eviction.Pod{Namespace: "shop", Name: name, MemoryRequest: request},
			Usage: &stats.Pod{Memory: stats.Known(usage)},
		}
	}
	for _, c := range []struct {
		first, second eviction.Candidate
		want          string
	}{
		{pod("a", 133672*ki, 0), pod("b", 36656*ki, 0), "uses 130Mi, shop/b 35.8Mi"},
		{pod("a", 36660*ki, 0), pod("b", 36656*ki, 0), "uses 36660Ki, shop/b 36656Ki"},
		{pod("a", 43416*ki, 32768*ki), pod("b", 20*ki, 32768*ki), "uses 42.4Mi and requested 32Mi; shop/b is within its request"},
		{pod("a", 32772*ki, 32768*ki), pod("b", 20*ki, 32768*ki), "uses 32772Ki and requested 32Mi; shop/b is within its request"},
		{pod("a", 166440*ki, 32768*ki), pod("b", 36656*ki, 0), "is 130Mi above its request, shop/b 35.8Mi above"},
		{pod("a", 52404*ki, 98304*ki), pod("b", 166500*ki, 225280*ki), "is 44.8Mi below its request, shop/b 57.4Mi below"},
	} {
		ranking := eviction.Rank(&eviction.Config{Layout: eviction.SharedFs}, eviction.MemoryAvailable, []eviction.Candidate{c.second, c.first}, nil)
		if got := ranking[0].Before(&ranking[1]); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
