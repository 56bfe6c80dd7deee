package eviction_test

import (
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
