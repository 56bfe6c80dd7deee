package eviction_test

import (
	"strings"
	"testing"
	"time"

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
		ranking := eviction.Rank(signal, eviction.SharedFs, candidates, nil)
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

// rule: M.44
func TestASoftVictimThatOthersWouldBeEvictedForHasNoMoreTimeAtAHardThreshold(t *testing.T) {
	const hog, other = "hog", "other"
	for _, c := range []struct {
		name            string
		hogGrows, grows int64
		hogUses         int64
		protected       bool // the other one
		ended           bool // the hog
		victim          types.UID
		hastened        string
	}{
		{name: "it keeps growing", hogGrows: 2, grows: 1, hogUses: 2 * gi, hastened: hog},
		{name: "it does not grow", hogUses: 2 * gi, hastened: hog},
		{name: "another grows faster", hogGrows: 1, grows: 2, hogUses: 2 * gi, hastened: hog},
		{name: "another is ranked before it", hogGrows: 2, grows: 1, hogUses: gi / 2, victim: other},
		{name: "no other pod may be evicted", hogUses: gi / 2, protected: true, hastened: hog},
		{name: "it has ended", hogGrows: 2, grows: 1, hogUses: 2 * gi, ended: true, victim: other},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newSmallNode()
			n.cfg.MeasuresRelief = true
			pod := func(name string, uses, grows int64) eviction.Candidate {
				grace := int64(60)
				return eviction.Candidate{
					Pod:   &eviction.Pod{UID: types.UID(name), Namespace: "default", Name: name, TerminationGracePeriod: &grace},
					Usage: &stats.Pod{Memory: stats.Known(uses)}, Growth: grows,
				}
			}
			candidates := []eviction.Candidate{pod(hog, c.hogUses, c.hogGrows), pod(other, gi, c.grows)}
			if c.protected {
				candidates[1].Pod.Protection = eviction.StaticPod
			}
			if c.ended {
				candidates[0].Usage.Threads = stats.Known(0)
			}
			n.state.InFlight = []eviction.InFlight{{UID: hog, Signal: eviction.MemoryAvailable, Since: noon, Grace: time.Minute}}
			before := n.state
			decide := func(after time.Duration) eviction.Decision {
				in := eviction.Input{Now: noon.Add(after), Pass: eviction.Event, Sampled: true, Candidates: candidates}
				in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(gi / 2), Time: in.Now}
				state, d := eviction.Decide(&n.cfg, n.state, in)
				n.state = state
				return d
			}
			d := decide(time.Second)
			if c.hastened == "" {
				if len(d.Hastened) > 0 || len(d.Evictions) != 1 || d.Evictions[0].Pod.UID != c.victim {
					t.Errorf("hastened %v, evictions %+v", d.Hastened, d.Evictions)
				}
				return
			}
			want := eviction.InFlight{UID: hog, Signal: eviction.MemoryAvailable, Hard: true, Since: noon.Add(time.Second), Grace: time.Second}
			if len(d.Hastened) != 1 || d.Hastened[0].Name != c.hastened || len(d.Evictions) > 0 || n.state.InFlight[0] != want || before.InFlight[0].Hard {
				t.Errorf("hastened %v, evictions %+v, in flight %+v", d.Hastened, d.Evictions, n.state.InFlight)
			}
			if d := decide(2 * time.Second); len(d.Hastened)+len(d.Evictions) > 0 {
				t.Errorf("again: hastened %v, evictions %+v", d.Hastened, d.Evictions)
			}
			if d := decide(13 * time.Second); !c.protected && len(d.Evictions) != 1 {
				t.Errorf("overdue, and no pod is evicted: %+v", d)
			}
		})
	}
}
