package main

import (
	"slices"
	"strings"
	"testing"
)

func TestSituationsAreAllRatesAtEachLoad(t *testing.T) {
	got, err := situations("0.1,0", "0,20")
	if want := []situation{{0.1, 0}, {0, 0}, {0.1, 20}, {0, 20}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, c := range []struct{ rates, loads, names string }{
		{"fast", "0", "-rates"}, {"-1", "0", "-rates"}, {"NaN", "0", "-rates"}, {"Inf", "0", "-rates"}, {"1,", "0", "-rates"},
		{"1", "many", "-load"}, {"1", "-1", "-load"}, {"1", "", "-load"}, {"1", "0.5", "-load"},
	} {
		if _, err := situations(c.rates, c.loads); err == nil || !strings.HasPrefix(err.Error(), c.names+" ") {
			t.Errorf("rates %q, loads %q: got %v, want a fault of %s", c.rates, c.loads, err, c.names)
		}
	}
}

func TestAPodCrossesTheThresholdOfANodeOfAnySizeAfterItIsPrefilled(t *testing.T) {
	if got, want := sized(512), (size{512, 100, 300, 768}); got != want {
		t.Errorf("the node has %+v by default, want %+v", got, want)
	}
	for memory := leastMemory; memory <= 4096; memory++ {
		if s := sized(memory); s.threshold == 0 || s.prefilled == 0 || s.prefilled >= s.memory-s.threshold || s.most <= s.memory {
			t.Errorf("%d MiB: %+v", memory, s)
		}
	}
}

func TestQuantilesAreNearestRanks(t *testing.T) {
	for want, values := range map[string][]float64{"-\t-\t-\t": nil, "1.00\t1.00\t1.00\t": {1}, "2.00\t3.00\t3.00\t": {3, 1, 2}} {
		if got := quantiles(values); got != want {
			t.Errorf("%v: got %q, want %q", values, got, want)
		}
	}
}

func TestMeminfoHasOneLength(t *testing.T) {
	if a, b := meminfo(512*mib, 0), meminfo(512*mib, 512*mib); len(a) != len(b) {
		t.Errorf("%d and %d bytes", len(a), len(b))
	}
}
