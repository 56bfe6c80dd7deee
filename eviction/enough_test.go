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
		at := slices.IndexFunc(d.Ranking, func(r eviction.Ranked) bool { return r.Pod == e.Pod })
		last := d.Ranking[at].LastResort // nothing is known to be freed: no other victim joins it
		if !last || len(victims) == 0 {
			victims = append(victims, e.Pod.UID)
		}
		if last {
			return victims
		}
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
