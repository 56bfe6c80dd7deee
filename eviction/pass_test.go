package eviction_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

const gi = 1 << 30

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// smallNode has a hard and a soft memory threshold, and one pod with a volume of
// limited size.
type smallNode struct {
	cfg   eviction.Config
	state eviction.State
	usage stats.Pod
	pod   eviction.Pod
}

func newSmallNode() *smallNode {
	limit := resource.MustParse("1Gi")
	return &smallNode{
		cfg: eviction.New(eviction.Config{
			Thresholds: []eviction.Threshold{
				{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: gi}},
				{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 2 * gi}, Grace: 30 * time.Second},
			},
			MaxPodGracePeriod:             60,
			HardGrace:                     time.Second,
			PressureTransitionPeriod:      time.Minute,
			LocalStorageCapacityIsolation: true,
		}, eviction.SharedFs),
		pod:   eviction.Pod{UID: "1", Name: "shop", Volumes: []eviction.Volume{{Name: "scratch", SizeLimit: &limit}}},
		usage: stats.Pod{Memory: stats.Known(gi), Volumes: []stats.Volume{{Used: stats.Known(0)}}},
	}
}

// pass opens one at an instant after noon, memory available being measured at
// that time.
func (n *smallNode) pass(kind eviction.Pass, after time.Duration, available int64, measured time.Time) eviction.Decision {
	in := eviction.Input{Now: noon.Add(after), Pass: kind, Sampled: true, Candidates: []eviction.Candidate{{Pod: &n.pod, Usage: &n.usage}}}
	in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(available), Time: measured}
	state, d := eviction.Decide(&n.cfg, n.state, in)
	d.Explain()
	n.state = state
	return d
}

func (n *smallNode) reports() bool { return n.state.Pressure[eviction.MemoryPressure].Reported }

// rule: M.11
func TestAnEventPassMovesNoSoftThresholdConditionOrLimit(t *testing.T) {
	event := func(n *smallNode, after time.Duration, available int64) eviction.Decision {
		return n.pass(eviction.Event, after, available, noon.Add(after))
	}
	housekeeping := func(n *smallNode, after time.Duration, available int64) eviction.Decision {
		return n.pass(eviction.Housekeeping, after, available, noon.Add(after))
	}

	t.Run("a soft grace neither begins nor starts again", func(t *testing.T) {
		n := newSmallNode()
		event(n, 0, 3*gi/2)
		if n.reports() {
			t.Error("an event pass raised a condition for a soft threshold")
		}
		housekeeping(n, time.Second, 3*gi/2)
		event(n, 15*time.Second, 3*gi) // recovered, between two regular passes
		if d := event(n, 31*time.Second, 3*gi/2); len(d.Met) > 0 {
			t.Errorf("an event pass acts on a soft threshold: %v", d.Met)
		}
		if d := housekeeping(n, 31*time.Second+1, 3*gi/2); len(d.Evictions) != 1 || d.Evictions[0].Hard || d.Evictions[0].GracePeriodSeconds != 60 {
			t.Errorf("the regular pass at the end of the grace decided %+v", d)
		}
	})
	t.Run("a hard threshold acts and raises its condition, which ends on a regular pass", func(t *testing.T) {
		n := newSmallNode()
		if d := event(n, 0, gi-1); len(d.Evictions) != 1 || !d.Evictions[0].Hard || !n.reports() {
			t.Errorf("below the hard threshold: %+v, condition %v", d, n.reports())
		}
		if event(n, time.Minute, 3*gi); !n.reports() {
			t.Error("an event pass ended a condition")
		}
		if housekeeping(n, time.Minute+1, 3*gi); n.reports() {
			t.Error("the regular pass did not end the condition after the transition period")
		}
	})
	t.Run("limits wait for the regular pass", func(t *testing.T) {
		n := newSmallNode()
		n.usage.Volumes[0].Used = stats.Known(2 * gi)
		if d := event(n, 0, 3*gi); len(d.Evictions) > 0 {
			t.Errorf("an event pass looked at limits: %+v", d.Evictions)
		}
		if d := housekeeping(n, time.Second, 3*gi); len(d.Evictions) != 1 || d.Evictions[0].Signal != eviction.EmptyDirLimit {
			t.Errorf("the regular pass decided %+v", d)
		}
	})
}

// rule: 3.26
func TestAnObservationWithoutATimeIsNew(t *testing.T) {
	for name, measured := range map[string]struct {
		first, second time.Time
		acts          bool
	}{
		"neither has a time":  {time.Time{}, time.Time{}, true},
		"the second has none": {noon, time.Time{}, true},
		"the first has none":  {time.Time{}, noon, true},
		"both have the same":  {noon, noon, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newSmallNode()
			n.pass(eviction.Housekeeping, 0, gi-1, measured.first)
			if d := n.pass(eviction.Housekeeping, time.Second, gi-1, measured.second); (len(d.Met) > 0) != measured.acts {
				t.Errorf("acting thresholds %v, want any: %v", d.Met, measured.acts)
			}
		})
	}
}
