package eviction_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

func TestGrowthSettlesWhatTheKubeletsRulesLeaveEqualAndNothingElse(t *testing.T) {
	candidate := func(name string, priority int32, memory, growth int64) eviction.Candidate {
		return eviction.Candidate{
			Pod:    &eviction.Pod{UID: types.UID(name), Namespace: "default", Name: name, Priority: priority},
			Usage:  &stats.Pod{Memory: stats.Known(memory), Processes: stats.Known(1)},
			Growth: growth,
		}
	}
	candidates := []eviction.Candidate{
		candidate("a-still", 0, gi, 0),
		candidate("b-grows", 0, gi, 4096),
		candidate("c-bigger", 0, gi+1, -4096),
		candidate("d-grows-most-and-counts-more", 1, 2*gi, 1<<30),
	}
	for signal, want := range map[eviction.Signal]string{
		eviction.MemoryAvailable: "c-bigger b-grows a-still d-grows-most-and-counts-more",
		eviction.PIDAvailable:    "a-still b-grows c-bigger d-grows-most-and-counts-more",
	} {
		var order []string
		ranking := eviction.Rank(&eviction.Config{Layout: eviction.SharedFs}, signal, candidates, nil)
		for _, r := range ranking {
			order = append(order, r.Pod.Name)
		}
		if got := strings.Join(order, " "); got != want {
			t.Errorf("%v: %s, want %s", signal, got, want)
		}
		if because := ranking[1].Before(&ranking[2]); signal == eviction.MemoryAvailable && !strings.Contains(because, "grows faster") {
			t.Errorf("because %q", because)
		}
	}
}
