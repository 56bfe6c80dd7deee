package eviction_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// TestPredictionsAreDecisions compares forecasts with decisions at hard
// thresholds that are met.
func TestPredictionsAreDecisions(t *testing.T) {
	foreseen := 0
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		cfg := anyConfig(r)
		s := one(r, eviction.MemoryAvailable, eviction.NodeFsAvailable, eviction.PIDAvailable)
		cfg.LocalStorageCapacityIsolation, cfg.MeasuresRelief, cfg.EnoughVictims = false, false, true
		cfg.Thresholds = []eviction.Threshold{{Signal: s, Value: eviction.Value{Amount: 1 + r.Int64N(2000)}, MinReclaim: eviction.Value{Amount: r.Int64N(500)}}}
		in := eviction.Input{Now: start, Candidates: anyCandidates(r, 8), Sampled: true}
		in.Signals[s] = eviction.Observation{Available: stats.Known(r.Int64N(2500)), Capacity: stats.Known(10000), Time: start}
		f, ok := eviction.Predict(&cfg, eviction.State{}, in, 0)
		if !ok {
			t.Fatal("no prediction of a signal that was measured")
		}
		if f.Assumed {
			in.Signals[s].Available = stats.Known(f.Required - 1)
		}
		st, d := eviction.Decide(&cfg, eviction.State{}, in)
		if len(d.Reclaim) > 0 {
			in.Pass = eviction.Continue
			_, d = eviction.Decide(&cfg, st, in)
		}
		var want []types.UID
		for i := range d.Evictions {
			want = append(want, d.Evictions[i].Pod.UID)
		}
		if !slices.Equal(f.Victims, want) {
			t.Fatalf("foreseen %v, decided %v", f.Victims, want)
		}
		if len(want) > 0 {
			foreseen++
		}
	})
	if foreseen == 0 {
		t.Error("no round had a victim")
	}
}

func TestAVictimThatAnswersForAnotherResourceIsAwaited(t *testing.T) {
	cfg := eviction.Config{Thresholds: []eviction.Threshold{{Signal: eviction.PIDAvailable, Value: eviction.Value{Amount: 1000}}}}
	st := eviction.State{InFlight: []eviction.InFlight{{UID: "bomb", Signal: eviction.MemoryAvailable, Hard: true, Since: start, Grace: time.Second}}}
	for bombs, want := range map[int64]types.UID{500: "bomb", 5: ""} {
		in := eviction.Input{Now: start}
		for uid, processes := range map[types.UID]int64{"bomb": bombs, "web": 50} {
			in.Candidates = append(in.Candidates, eviction.Candidate{Pod: &eviction.Pod{UID: uid}, Usage: &stats.Pod{Processes: stats.Known(processes)}})
		}
		in.Signals[eviction.PIDAvailable] = eviction.Observation{Available: stats.Known(100), Time: start}
		f, _ := eviction.Predict(&cfg, st, in, 0)
		if want == "" && (len(f.Awaited) > 0 || !slices.Equal(f.Victims, []types.UID{"web"})) || want != "" && (len(f.Victims) > 0 || !slices.Equal(f.Awaited, []types.UID{want})) {
			t.Errorf("%d processes: victims %v, awaited %v", bombs, f.Victims, f.Awaited)
		}
	}
}

// TestEachChangeIsTheSmallestThatPasses changes the pod itself and ranks again.
func TestEachChangeIsTheSmallestThatPasses(t *testing.T) {
	tried := map[string]int{}
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		s := one(r, eviction.MemoryAvailable, eviction.NodeFsAvailable, eviction.PIDAvailable)
		candidates := anyCandidates(r, 6)
		ranking := eviction.Rank(&eviction.Config{Layout: eviction.SharedFs}, s, candidates, nil)
		if len(ranking) < 2 {
			return
		}
		i, j := r.IntN(len(ranking)), r.IntN(len(ranking))
		if i == j || ranking[i].Pod.UID == ranking[j].Pod.UID {
			return
		}
		for _, c := range ranking[i].Passing(&ranking[j]) {
			if c.Of == "usage" { // of several parts: left to the figures above
				continue
			}
			step := int64(1)
			if c.To < c.From {
				step = -1
			}
			for _, probe := range []struct {
				to     int64
				passes bool
			}{{c.To, true}, {c.To - step, false}} {
				pod := *ranking[i].Pod
				switch {
				case c.Of == "priority":
					pod.Priority = int32(probe.to)
				case s == eviction.MemoryAvailable:
					pod.MemoryRequest = probe.to
				default:
					pod.StorageRequest = probe.to
				}
				changed := []eviction.Candidate{ranking[j].Candidate, {Pod: &pod, Usage: ranking[i].Candidate.Usage, Growth: ranking[i].Growth}}
				first := eviction.Rank(&eviction.Config{Layout: eviction.SharedFs}, s, changed, nil)[0].Pod.UID == pod.UID
				if passes := first != (i < j); passes != probe.passes {
					t.Fatalf("%s %d instead of %d: passes %t, want %t", c.Of, probe.to, c.From, passes, probe.passes)
				}
			}
			tried[c.Of]++
		}
	})
	if tried["priority"] == 0 || tried["request"] == 0 {
		t.Errorf("changes tried: %v", tried)
	}
}

func TestOnlyFiguresThatReachThePlaceAreNamed(t *testing.T) {
	pod := func(uid types.UID, priority int32, request, used int64) eviction.Candidate {
		return eviction.Candidate{Pod: &eviction.Pod{UID: uid, Priority: priority, MemoryRequest: request}, Usage: &stats.Pod{Memory: stats.Known(used)}}
	}
	ranking := eviction.Rank(&eviction.Config{Layout: eviction.SharedFs}, eviction.MemoryAvailable, []eviction.Candidate{pod("a", 0, 100, 300), pod("b", 0, 100, 50), pod("c", 5, 100, 50)}, nil)
	for _, c := range []struct {
		from, to int
		want     []eviction.Change
	}{
		{0, 1, []eviction.Change{{Of: "usage", From: 300, To: 49}, {Of: "request", From: 100, To: 351}}}, // as much as the other, it is first by uid
		{1, 0, []eviction.Change{{Of: "usage", From: 50, To: 301}}},
		{2, 0, nil}, // excess comes before priority, and priority before how much
	} {
		if got := ranking[c.from].Passing(&ranking[c.to]); !slices.Equal(got, c.want) {
			t.Errorf("%d past %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
