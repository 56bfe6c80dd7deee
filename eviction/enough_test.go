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

// oneByOne is the reference of a pass that evicts enough victims: passes that evict one
// each, between which the victim is gone and has freed what it used, until
// the threshold is resolved or the signal is unknown.
func oneByOne(cfg eviction.Config, in eviction.Input) (victims []types.UID) {
	cfg.EnoughVictims = false
	in.Candidates = slices.Clone(in.Candidates)
	var st eviction.State
	for {
		var d eviction.Decision
		st, d = eviction.Decide(&cfg, st, in)
		for len(d.Reclaim) > 0 {
			again := in
			again.Pass, again.Outcomes = eviction.Continue, nil
			st, d = eviction.Decide(&cfg, st, again)
		}
		if len(d.Evictions) == 0 {
			return victims
		}
		e := &d.Evictions[0]
		victims = append(victims, e.Pod.UID)
		at := slices.IndexFunc(d.Ranking, func(r eviction.Ranked) bool { return r.Pod == e.Pod })
		freed, known := d.Ranking[at].WouldFree.Get()
		if !known {
			return victims
		}
		o := &in.Signals[e.Signal]
		o.Available = stats.Known(o.Available.Or(0) + freed)
		in.Now = in.Now.Add(time.Second)
		o.Time = in.Now
		in.Outcomes = []eviction.Outcome{{UID: e.Pod.UID}}
		in.Candidates = slices.DeleteFunc(in.Candidates, func(c eviction.Candidate) bool { return c.Pod == e.Pod })
	}
}

// rule: M.41
func TestEnoughVictimsAreThoseOfSinglePasses(t *testing.T) {
	several := 0
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		cfg := anyConfig(r)
		s := one(r, eviction.MemoryAvailable, eviction.NodeFsAvailable, eviction.PIDAvailable)
		cfg.LocalStorageCapacityIsolation, cfg.MeasuresRelief, cfg.EnoughVictims = false, false, true
		cfg.Thresholds = []eviction.Threshold{{Signal: s, Value: eviction.Value{Amount: r.Int64N(2000)}, MinReclaim: eviction.Value{Amount: r.Int64N(500)}}}
		if s == eviction.PIDAvailable {
			cfg.Thresholds[0].Value.Amount /= 50
			cfg.Thresholds[0].MinReclaim.Amount /= 50
		}
		in := eviction.Input{Now: start, Candidates: anyCandidates(r, 8), Sampled: true}
		in.Signals[s] = eviction.Observation{Available: stats.Known(r.Int64N(1000)), Capacity: stats.Known(10000), Time: start}
		want := oneByOne(cfg, in)
		st, d := eviction.Decide(&cfg, eviction.State{}, in)
		for len(d.Reclaim) > 0 {
			in.Pass = eviction.Continue
			st, d = eviction.Decide(&cfg, st, in)
		}
		var got []types.UID
		for i := range d.Evictions {
			got = append(got, d.Evictions[i].Pod.UID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("together %v, one by one %v", got, want)
		}
		if len(got) > 1 {
			several++
		}
	})
	if several < rounds/20 {
		t.Errorf("only %d of %d nodes needed several victims", several, rounds)
	}
}

func TestThreadsCountWhenProcessIDsAreShort(t *testing.T) {
	cfg := eviction.New(eviction.Config{
		Thresholds:    []eviction.Threshold{{Signal: eviction.PIDAvailable, Value: eviction.Value{Amount: 100}}},
		EnoughVictims: true,
	}, eviction.SharedFs)
	in := eviction.Input{Now: start, Sampled: true}
	for _, name := range []types.UID{"a", "b"} {
		in.Candidates = append(in.Candidates, eviction.Candidate{
			Pod:   &eviction.Pod{UID: name, Name: string(name)},
			Usage: &stats.Pod{Processes: stats.Known(1), Threads: stats.Known(200)},
		})
	}
	in.Signals[eviction.PIDAvailable] = eviction.Observation{Available: stats.Known(0), Time: start}
	if _, d := eviction.Decide(&cfg, eviction.State{}, in); len(d.Evictions) != 1 {
		t.Errorf("%d victims for what the threads of one cover", len(d.Evictions))
	}
}

// twoThresholds is a node with a soft threshold at 2 Gi and a hard one at 1 Gi.
func twoThresholds() eviction.Config {
	return newSmallNode().cfg
}

func holding(uid types.UID, request, memory int64) eviction.Candidate {
	return eviction.Candidate{Pod: &eviction.Pod{UID: uid, Name: string(uid), MemoryRequest: request}, Usage: &stats.Pod{Memory: stats.Known(memory)}}
}

// rule: M.43
func TestWhatAKilledSoftVictimStillHoldsNeedsNoSecondVictim(t *testing.T) {
	cfg := twoThresholds()
	in := eviction.Input{Sampled: true, Candidates: []eviction.Candidate{holding("a", 0, 3*gi), holding("b", 0, gi)}}
	pass := func(st eviction.State, after time.Duration, available int64) (eviction.State, []eviction.Eviction) {
		in.Now = start.Add(after)
		in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(available), Time: in.Now}
		st, d := eviction.Decide(&cfg, st, in)
		return st, d.Evictions
	}
	st, _ := pass(eviction.State{}, 0, 3*gi/2)
	st, soft := pass(st, 30*time.Second, 3*gi/2)
	if len(soft) != 1 || soft[0].Pod.UID != "a" {
		t.Fatalf("the soft victims are %v", soft)
	}
	const grace = 60 * time.Second // of its pod
	if _, hard := pass(st, 40*time.Second, gi/2); len(hard) != 1 {
		t.Errorf("victims %v of the hard threshold while the soft one may still shut down, want one", hard)
	}
	killed := 30*time.Second + grace
	if _, hard := pass(st, killed, gi/2); len(hard) != 0 {
		t.Errorf("victims %v while a killed one gives back enough", hard)
	}
	in.Candidates[0].Usage.Memory = stats.Known(gi / 4) // the rest has come back, and more was used
	if _, hard := pass(st, killed, gi/2); len(hard) != 1 {
		t.Errorf("victims %v while a killed one gives back too little, want one", hard)
	}
	in.Candidates[0].Usage.Memory = stats.Known(3 * gi)
	if _, hard := pass(st, killed+11*time.Second, gi/2); len(hard) != 1 {
		t.Errorf("victims %v beside one that does not die, want one", hard)
	}
}

func answer(yes bool) eviction.Answer {
	if yes {
		return eviction.Yes
	}
	return eviction.No
}

// rule: M.42
func TestPodsWithinTheirRequestAreSparedForAWhileWhereUnknownPodsRun(t *testing.T) {
	cfg := twoThresholds()
	within, over := holding("within", 2*gi, gi), holding("over", 0, gi/8)
	type step struct {
		after     time.Duration
		available int64
		unknown   bool
		pods      []eviction.Candidate
		victim    types.UID
		held      bool
	}
	for name, steps := range map[string][]step{
		"until the unknown pod is known":               {{0, 0, true, []eviction.Candidate{within}, "", true}, {300 * time.Millisecond, 0, false, []eviction.Candidate{within, over}, "over", false}},
		"and no longer than two seconds":               {{0, 0, true, []eviction.Candidate{within}, "", true}, {2*time.Second - 1, 0, true, []eviction.Candidate{within}, "", true}, {2 * time.Second, 0, true, []eviction.Candidate{within}, "within", false}},
		"a pod above its request is evicted at once":   {{0, 0, true, []eviction.Candidate{within, over}, "over", false}},
		"without unknown pods none is spared":          {{0, 0, false, []eviction.Candidate{within}, "within", false}},
		"the time begins again with the next crossing": {{0, 0, true, []eviction.Candidate{within}, "", true}, {3 * time.Second, 4 * gi, true, []eviction.Candidate{within}, "", false}, {4 * time.Second, 0, true, []eviction.Candidate{within}, "", true}},
	} {
		t.Run(name, func(t *testing.T) {
			var st eviction.State
			for _, s := range steps {
				in := eviction.Input{Now: start.Add(s.after), Pass: eviction.Event, Sampled: true, UnknownPods: answer(s.unknown), Candidates: s.pods}
				in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(s.available), Time: in.Now}
				var d eviction.Decision
				st, d = eviction.Decide(&cfg, st, in)
				var victim types.UID
				if len(d.Evictions) > 0 {
					victim = d.Evictions[0].Pod.UID
				}
				if victim != s.victim || (d.HeldBack != nil) != s.held {
					t.Errorf("after %v: victim %q, held back %v", s.after, victim, d.HeldBack)
				}
			}
		})
	}
}
