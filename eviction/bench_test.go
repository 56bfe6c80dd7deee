package eviction_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// busy is a node with the kubelet's default thresholds and many pods, with so
// much memory left.
func busy(pods int, left int64) (eviction.Config, eviction.Input) {

	var thresholds []eviction.Threshold
	for _, s := range eviction.Signals() {
		thresholds = append(thresholds, eviction.Threshold{Signal: s, Value: eviction.Value{Fraction: 0.1}})
	}
	cfg := eviction.New(eviction.Config{Thresholds: thresholds, PressureTransitionPeriod: time.Minute, LocalStorageCapacityIsolation: true}, eviction.SharedFs)
	in := eviction.Input{Now: start, Sampled: true}
	for s := range in.Signals {
		in.Signals[s] = eviction.Observation{Available: stats.Known(50 * gi), Capacity: stats.Known(100 * gi), Time: start}
	}
	in.Signals[eviction.MemoryAvailable].Available = stats.Known(left)
	for i := range pods {
		pod := &eviction.Pod{
			UID: types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", i*7919%pods, i)), Namespace: "default", Name: fmt.Sprint("pod-", i),
			Priority: int32(i % 3), MemoryRequest: gi, Containers: make([]eviction.Container, 2), Volumes: make([]eviction.Volume, 2),
		}
		in.Candidates = append(in.Candidates, eviction.Candidate{Pod: pod, Usage: &stats.Pod{
			Memory: stats.Known(int64(i*6151%pods) * gi / int64(pods/2)), Containers: make([]stats.Container, 2), Volumes: make([]stats.Volume, 2),
		}})
	}
	return cfg, in
}

const plenty, nothing = 50 << 30, 1 << 30

func TestAClearEventPassAllocatesNothing(t *testing.T) {
	cfg, in := busy(500, plenty)
	in.Pass = eviction.Event
	var st eviction.State
	if n := testing.AllocsPerRun(100, func() { st, _ = eviction.Decide(&cfg, st, in) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// refilled are buffers for a hundred passes, and the first one of testing.AllocsPerRun.
func refilled(candidates int) []eviction.Buffers {
	buffers := make([]eviction.Buffers, 101)
	for i := range buffers {
		buffers[i].Refill(candidates)
	}
	return buffers
}

// A hard threshold is crossed while memory of a pod is being reclaimed and a pod is throttled: both end before
// the first signal.
func TestTheEndsOfReclaimAndThrottleAllocateNothing(t *testing.T) {
	cfg, in := busy(500, nothing)
	cfg.MemoryReclaims, cfg.ThrottlePeriod = eviction.MemoryReclaims{Budget: gi, Step: gi, Attempts: 1}, 5*time.Second
	in.Pass, in.Sampled = eviction.Event, false
	uid := in.Candidates[0].Pod.UID
	var st eviction.State
	st.Throttled.Pod, st.Throttled.Since = in.Candidates[0].Pod, start
	st.Round.Began, st.Round.Pods, st.Round.Of = start, []eviction.PodMemory{{UID: uid}}, gi
	var d eviction.Decision
	buffers := refilled(len(in.Candidates))
	n := testing.AllocsPerRun(len(buffers)-1, func() {
		in.Buffers, buffers = &buffers[0], buffers[1:]
		_, d = eviction.Decide(&cfg, st, in)
	})
	if n != 0 || len(d.Steps) != 2 || !d.Steps[0].Over || !d.Steps[1].Over {
		t.Errorf("%v allocations, ends %+v", n, d.Steps)
	}
}

func BenchmarkDecideClearEventPass(b *testing.B) {
	cfg, in := busy(500, plenty)
	in.Pass = eviction.Event
	benchmarkDecide(b, cfg, in)
}

func BenchmarkDecideClearHousekeepingPass(b *testing.B) {
	cfg, in := busy(500, plenty)
	benchmarkDecide(b, cfg, in)
}

func BenchmarkDecideMemoryPassOf500Pods(b *testing.B) {
	cfg, in := busy(500, nothing)
	benchmarkDecide(b, cfg, in)
}

func benchmarkDecide(b *testing.B, cfg eviction.Config, in eviction.Input) {
	b.ReportAllocs()
	for b.Loop() {
		eviction.Decide(&cfg, eviction.State{}, in)
	}
}

func BenchmarkRank500Pods(b *testing.B) {
	_, in := busy(500, nothing)
	ranked := make([]eviction.Ranked, 0, len(in.Candidates))
	b.ReportAllocs()
	for b.Loop() {
		ranked = eviction.Rank(&eviction.Config{Layout: eviction.SharedFs}, eviction.MemoryAvailable, in.Candidates, ranked[:0])
	}
}

// The victim has two containers, and its first one is restarted in its place.
func TestARestartAllocatesNothing(t *testing.T) {
	cfg, in := busy(500, nothing)
	cfg.Restarts = eviction.Restarts{BackOff: time.Hour, Grace: time.Second}
	in.Pass = eviction.Event
	victim := &in.Candidates[slices.IndexFunc(in.Candidates, func(c eviction.Candidate) bool { return c.Pod == first(&cfg, in.Candidates) })]
	pod := *victim.Pod
	pod.Containers = []eviction.Container{{Name: "a", Restart: eviction.AlwaysRestarted}, {Name: "b"}}
	usage := *victim.Usage
	usage.Memory = stats.Known(200 * gi)
	usage.Containers = []stats.Container{{Memory: usage.Memory}, {Memory: stats.Known(0)}}
	victim.Pod, victim.Usage = &pod, &usage
	var st eviction.State
	var d eviction.Decision
	buffers := refilled(len(in.Candidates))
	n := testing.AllocsPerRun(len(buffers)-1, func() {
		in := in
		in.Buffers, buffers = &buffers[0], buffers[1:]
		var asked eviction.State
		if asked, d = eviction.Decide(&cfg, st, in); d.NeedContainers == nil {
			return
		}
		in.Pass, in.Detailed = eviction.Continue, d.NeedContainers.UID
		_, d = eviction.Decide(&cfg, asked, in)
	})
	if n != 0 || len(d.Restarts) != 1 || d.Restarts[0].Name() != "a" {
		t.Errorf("%v allocations, restarts %v", n, d.Restarts)
	}
}

// first is the first of all pods that may be evicted for memory.
func first(cfg *eviction.Config, candidates []eviction.Candidate) *eviction.Pod {
	ranking := eviction.Rank(cfg, eviction.MemoryAvailable, candidates, nil)
	return ranking[slices.IndexFunc(ranking, func(r eviction.Ranked) bool { return r.Exempt() == "" })].Pod
}
