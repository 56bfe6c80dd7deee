package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

func anyKind(r *rand.Rand) eviction.Pass {
	return one(r, eviction.Housekeeping, eviction.Event)
}

// rule: 5.21
// rule: 5.42
// rule: M.13
func TestOnlyUnprotectedPodsAreEvictedAndEachWithGrace(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 12 {
			n.pass(t, r, anyKind(r))
		}
		for _, c := range n.calls {
			flying := map[types.UID]bool{}
			for _, f := range c.before.InFlight {
				flying[f.UID] = f.Ended.IsZero() && !f.Unattended // others may be released now
			}
			for _, o := range c.in.Outcomes {
				delete(flying, o.UID)
			}
			for _, ranked := range c.out.Ranking {
				if flying[ranked.Pod.UID] {
					t.Errorf("%v is ranked while in flight", ranked.Pod)
				}
			}
			for _, e := range c.out.Evictions {
				if e.Pod.Protection != "" || e.Pod.Terminal || flying[e.Pod.UID] {
					t.Errorf("%v was evicted: protection %q, terminal %t, in flight %t", e.Pod, e.Pod.Protection, e.Pod.Terminal, flying[e.Pod.UID])
				}
				if !slices.ContainsFunc(c.after.InFlight, func(f eviction.InFlight) bool { return f.UID == e.Pod.UID && f.Since.Equal(c.in.Now) }) {
					t.Errorf("%v is not in flight", e.Pod)
				}
				if e.GracePeriodSeconds < 1 || e.Hard && e.GracePeriodSeconds != 1 {
					t.Errorf("%v got %d s, hard %t", e.Pod, e.GracePeriodSeconds, e.Hard)
				}
			}
		}
	})
}

// rule: 3.21
func TestAPassTakesOneVictimOfPressureUnlessConfiguredOtherwiseAndAsksForOneThing(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 10 {
			victims := map[types.UID]bool{}
			limited := map[types.UID]bool{}
			for _, c := range n.pass(t, r, anyKind(r)) {
				for _, o := range c.in.Outcomes {
					delete(victims, o.UID)
					delete(limited, o.UID)
				}
				for _, e := range c.out.Evictions {
					if e.DisruptionTarget {
						victims[e.Pod.UID] = true
					} else {
						limited[e.Pod.UID] = true
					}
				}
				asks := 0
				for _, asked := range []bool{c.out.NeedUsage, c.out.NeedUnknownPods, len(c.out.Reclaim) > 0, len(c.out.Evictions) > 0} {
					if asked {
						asks++
					}
				}
				if asks > 1 {
					t.Errorf("asks for several things: %s", text(c.out))
				}
			}
			if len(victims) > 1 && !n.cfg.EnoughVictims || len(victims) > 0 && len(limited) > 0 {
				t.Errorf("victims of pressure %v, of limits %v", victims, limited)
			}
		}
	})
}

// rule: 3.15
// rule: 3.24
func TestNothingIsDoneWhileAllSignalsAreClearOrUnknown(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		n.cfg.LocalStorageCapacityIsolation = false
		in := eviction.Input{Now: n.now, Pass: anyKind(r), Candidates: n.pods, Sampled: true}
		for s := range in.Signals {
			switch r.IntN(3) {
			case 0: // more than any threshold and its minimum reclaim
				in.Signals[s] = eviction.Observation{Available: stats.Known(3000), Capacity: stats.Known(1000), Time: n.now}
			case 1: // a capacity, and nothing known of what is left
				in.Signals[s] = eviction.Observation{Capacity: stats.Known(1000), Time: n.now}
			}
		}
		if d := n.decide(in); !reflect.DeepEqual(d, eviction.Decision{}) {
			t.Errorf("decided %s", text(d))
		}
		for c, p := range n.state.Pressure {
			if p.Reported {
				t.Errorf("%v is reported", eviction.Condition(c))
			}
		}
	})
}

func TestAWorseObservationNeverFreesAConditionEarlier(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		cfg := anyConfig(r)
		var better, worse eviction.State
		now := start
		for range 15 {
			now = now.Add(time.Duration(r.IntN(12)) * time.Second)
			in := eviction.Input{Now: now, Pass: anyKind(r), Signals: anySignals(r, now)}
			better, _ = eviction.Decide(&cfg, better, in)
			for s := range in.Signals {
				if o := &in.Signals[s]; o.Available.IsKnown() {
					o.Available = stats.Known(max(0, o.Available.Or(0)-one(r, 0, r.Int64N(500))))
				}
			}
			worse, _ = eviction.Decide(&cfg, worse, in)
			for c := range better.Pressure {
				if better.Pressure[c].Reported && !worse.Pressure[c].Reported {
					t.Errorf("%v is reported at the better node only", eviction.Condition(c))
				}
			}
		}
	})
}

// rule: M.11
func TestAnEventPassMovesNothingButHardThresholds(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 12 {
			kind := anyKind(r)
			calls := n.pass(t, r, kind)
			if kind != eviction.Event {
				continue
			}
			before, after := calls[0].before, calls[len(calls)-1].after
			for i := range n.cfg.Thresholds {
				if !n.cfg.Thresholds[i].Hard() && after.Thresholds[i] != before.Thresholds[i] {
					t.Errorf("soft threshold %d went from %+v to %+v", i, before.Thresholds[i], after.Thresholds[i])
				}
			}
			for c := range after.Pressure {
				if before.Pressure[c].Reported && !after.Pressure[c].Reported {
					t.Errorf("%v was lowered", eviction.Condition(c))
				}
			}
			for _, c := range calls {
				for _, e := range c.out.Evictions {
					if e.Signal != eviction.Admission && (!e.DisruptionTarget || !e.Hard) {
						t.Errorf("%v was evicted for %v, hard %t", e.Pod, e.Signal, e.Hard)
					}
				}
			}
		}
	})
}

// rule: M.10
func TestTheSameInputGivesTheSameOutputAndChangesNothing(t *testing.T) {
	for seed := range uint64(rounds) {
		simulated := func() *node {
			r := rand.New(rand.NewPCG(seed, 0))
			n := anyNode(r)
			for range 8 {
				n.pass(t, r, anyKind(r))
			}
			return n
		}
		first, second := simulated(), simulated()
		if !reflect.DeepEqual(first.calls, second.calls) {
			t.Fatalf("seed %d: two runs differ", seed)
		}
		r := rand.New(rand.NewPCG(seed, 0))
		if fresh := anyNode(r); !reflect.DeepEqual(first.cfg, fresh.cfg) || !reflect.DeepEqual(first.pods, fresh.pods) {
			t.Fatalf("seed %d: the configuration or the candidates were changed", seed)
		}
	}
}

func TestStatesAreValuesThatCanBranch(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 5 {
			n.pass(t, r, anyKind(r))
		}
		// From states on the way other ways are gone, and none of them reaches
		// into another.
		for _, c := range slices.Clone(n.calls) {
			if r.IntN(8) > 0 {
				continue
			}
			states, texts := []eviction.State{c.before, c.after}, []string{text(c.before), text(c.after)}
			for range 4 {
				branch := node{cfg: n.cfg, state: c.after, pods: n.pods, now: c.in.Now}
				branch.decide(eviction.Input{Now: branch.now, Pass: eviction.Continue, Signals: anySignals(r, branch.now), Candidates: n.pods, Sampled: true, Outcomes: anyFailures(r)})
				branch.pass(t, r, anyKind(r))
				for _, c := range branch.calls {
					states, texts = append(states, c.after), append(texts, text(c.after))
				}
			}
			for i, st := range states {
				if now := text(st); now != texts[i] {
					t.Fatalf("a later call changed an earlier state:\n%s\n%s", texts[i], now)
				}
			}
		}
	})
}

func anyFailures(r *rand.Rand) (outcomes []eviction.Outcome) {
	for range r.IntN(3) {
		outcomes = append(outcomes, eviction.Outcome{UID: types.UID(fmt.Sprint("pod", r.IntN(6))), Failed: true})
	}
	return outcomes
}

func TestRankingIsATotalOrderWhateverTheOrderOfThePods(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		layout := one(r, eviction.SharedFs, eviction.ImageFs, eviction.SplitFs)
		candidates := anyCandidates(r, 9)
		for _, s := range eviction.Signals() {
			order := uids(eviction.Rank(&eviction.Config{Layout: layout}, s, candidates, nil))
			r.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
			if again := uids(eviction.Rank(&eviction.Config{Layout: layout}, s, candidates, nil)); !slices.Equal(order, again) {
				t.Fatalf("%v: %v, and shuffled %v", s, order, again)
			}
			if s == eviction.MemoryStall { // which pods cause a stall depends on what all read back
				continue
			}
			// That every pair stands as the whole does makes the order of pairs
			// antisymmetric and transitive.
			for _, a := range candidates {
				for _, b := range candidates {
					i, j := slices.Index(order, a.Pod.UID), slices.Index(order, b.Pod.UID)
					pair := uids(eviction.Rank(&eviction.Config{Layout: layout}, s, []eviction.Candidate{a, b}, nil))
					if i >= 0 && j >= 0 && i < j && !slices.Equal(pair, []types.UID{a.Pod.UID, b.Pod.UID}) {
						t.Fatalf("%v: %v as a pair, %v among all", s, pair, order)
					}
				}
			}
		}
	})
}

func uids(ranking []eviction.Ranked) []types.UID {
	all := []types.UID{}
	for _, r := range ranking {
		all = append(all, r.Pod.UID)
	}
	return all
}

func TestWhatARankingSaysPutsOnePodBeforeTheNext(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		for _, s := range eviction.Signals() {
			ranking := eviction.Rank(&eviction.Config{Layout: one(r, eviction.SharedFs, eviction.ImageFs, eviction.SplitFs)}, s, anyCandidates(r, 5), nil)
			for i := range ranking[:max(0, len(ranking)-1)] {
				if why := ranking[i].Before(&ranking[i+1]); why == "" || why == ranking[i].Before(&ranking[i]) {
					t.Fatalf("%v: %v before %v: %q", s, ranking[i].Pod, ranking[i+1].Pod, why)
				}
			}
		}
	})
}

func TestAThresholdKeepsItsStandingUnderAnotherConfiguration(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 6 {
			n.pass(t, r, anyKind(r))
		}
		before := text(n.state)
		other := n.cfg
		other.Thresholds = slices.Clone(n.cfg.Thresholds)
		r.Shuffle(len(other.Thresholds), func(i, j int) {
			other.Thresholds[i], other.Thresholds[j] = other.Thresholds[j], other.Thresholds[i]
		})
		other.Thresholds = other.Thresholds[:r.IntN(len(other.Thresholds)+1)]
		moved := n.state.Under(&n.cfg, &other)
		standing := map[eviction.Threshold]eviction.Standing{}
		for i, threshold := range n.cfg.Thresholds {
			standing[threshold] = n.state.Thresholds[i]
		}
		for i, s := range moved.Thresholds {
			var want eviction.Standing
			if i < len(other.Thresholds) {
				want = standing[other.Thresholds[i]]
			}
			if s != want {
				t.Errorf("threshold %d stands %+v, want %+v", i, s, want)
			}
		}
		if text(n.state) != before || text(moved.Pressure) != text(n.state.Pressure) || text(moved.InFlight) != text(n.state.InFlight) {
			t.Error("the move changed more than the standing of thresholds")
		}
	})
}
