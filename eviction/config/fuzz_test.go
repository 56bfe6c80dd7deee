package config_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/stats"
)

func FuzzCompile(f *testing.F) {
	golden.Seed(f, "testdata/*.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		if first, again := effective(data), effective(data); string(first) != string(again) {
			t.Fatalf("comes to\n%s\nand then to\n%s", first, again)
		}
		file, err := config.Load(data)
		compiled, more := config.Compile(&file, nil)
		if err != nil || more != nil {
			return
		}
		thresholds := eviction.New(compiled.Eviction, eviction.ImageFs).Thresholds
		if len(thresholds) > eviction.MaxThresholds {
			t.Fatalf("%d thresholds", len(thresholds))
		}
		for _, capacity := range []int64{0, 1 << 30, math.MaxInt64} {
			var observed eviction.Observations
			for s := range observed {
				observed[s] = eviction.Observation{Available: stats.Known(capacity), Capacity: stats.Known(capacity)}
			}
			compiled.CheckCapacity(observed)
			for _, threshold := range thresholds {
				required, _ := threshold.Value.Of(observed[threshold.Signal])
				reclaim, _ := threshold.MinReclaim.Of(observed[threshold.Signal])
				if required < 0 || reclaim < 0 || threshold.Grace < 0 {
					t.Fatalf("%+v comes to %d and %d", threshold, required, reclaim)
				}
			}
		}
	})
}

func FuzzParseThresholds(f *testing.F) {
	for _, text := range []string{"", "memory.available<100Mi, nodefs.available<10%", "a<b<c,d<", "a=1,b=<2,,", "<", " , a < b "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for separator, parse := range map[string]func(string) (map[string]string, error){"<": config.ParseThresholds, "=": config.ParseSettings} {
			parsed, err := parse(text)
			if err != nil {
				continue
			}
			var entries []string
			for name, value := range parsed {
				entries = append(entries, name+separator+value)
			}
			slices.Sort(entries)
			if again, err := parse(strings.Join(entries, ",")); err != nil || !maps.Equal(again, parsed) {
				t.Errorf("%q is read as %q, and written back as %q, %v", text, parsed, again, err)
			}
		}
	})
}
