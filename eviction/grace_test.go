package eviction_test

import (
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// rule: M.53
func TestAHardVictimHasHalfOfTheTimeThatItsSignalLasts(t *testing.T) {
	cfg := eviction.New(eviction.Config{
		Thresholds: []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: gi}}}, HardGrace: time.Second,
	}, eviction.SharedFs)
	candidate := eviction.Candidate{Pod: &eviction.Pod{UID: "1", Name: "shop"}, Usage: &stats.Pod{Memory: stats.Known(gi)}}
	var st eviction.State
	pass := func(at time.Duration, usedUpIn stats.Amount) eviction.Decision {
		in := eviction.Input{Now: start.Add(at), Pass: eviction.Event, Sampled: true, Candidates: []eviction.Candidate{candidate}}
		in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(gi / 2), Time: in.Now, UsedUpIn: usedUpIn}
		var d eviction.Decision
		st, d = eviction.Decide(&cfg, st, in)
		return d
	}
	lasts := func(d time.Duration) stats.Amount { return stats.Known(int64(d)) }
	for usedUpIn, want := range map[stats.Amount]time.Duration{
		{}:                             time.Second,
		lasts(10 * time.Second):        time.Second,
		lasts(time.Second):             450 * time.Millisecond,
		lasts(80 * time.Millisecond):   0,
		lasts(0):                       0,
		lasts(2100 * time.Millisecond): time.Second,
	} {
		st = eviction.State{}
		d := pass(0, usedUpIn)
		if len(d.Evictions) != 1 || d.Evictions[0].Grace != want || st.InFlight[0].Grace != want || d.Evictions[0].GracePeriodSeconds != 1 {
			t.Errorf("used up in %v ns: %+v, want %v", usedUpIn.Or(-1), d.Evictions, want)
		}
	}

	st = eviction.State{}
	pass(0, lasts(time.Minute))
	for _, c := range []struct {
		at   time.Duration
		left stats.Amount
		want []eviction.Shortened
	}{
		{100 * time.Millisecond, lasts(2 * time.Second), nil}, // longer than what is left
		{200 * time.Millisecond, lasts(time.Second), []eviction.Shortened{{UID: "1", Grace: 450 * time.Millisecond}}},
		{300 * time.Millisecond, lasts(time.Minute), nil}, // never prolonged
		{400 * time.Millisecond, lasts(50 * time.Millisecond), []eviction.Shortened{{UID: "1", Grace: 0}}},
		{500 * time.Millisecond, lasts(0), nil}, // SIGKILL is sent
	} {
		if d := pass(c.at, c.left); !slices.Equal(d.Shortened, c.want) {
			t.Errorf("at %v shortened %+v, want %+v", c.at, d.Shortened, c.want)
		}
	}
	if got := st.InFlight[0].Grace; got != 400*time.Millisecond {
		t.Errorf("the grace is %v in the end", got)
	}
}
