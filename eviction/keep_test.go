package eviction_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/require"
)

// rule: M.50
func TestAStateThatWasKeptIsAsItWasHoweverLongAgoThatIs(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 5 {
			n.pass(t, r, anyKind(r))
		}
		text, err := json.Marshal(n.state.Keep(&n.cfg, n.now))
		var kept eviction.Kept
		if err == nil {
			err = json.Unmarshal(text, &kept)
		}
		require.NoError(t, err)
		ago := time.Duration(r.IntN(100)) * time.Second
		now, want := n.now.Add(ago), n.state
		want.InFlight = nil
		for _, f := range n.state.InFlight {
			if !f.Overdue(now) {
				want.InFlight = append(want.InFlight, f)
			}
		}
		for d := range want.Reclaims {
			if !want.Reclaims[d].Rest.After(now) {
				want.Reclaims[d].Rest = time.Time{}
			}
		}
		if got := kept.Restore(&n.cfg, now, ago); !got.SameKept(&want) {
			t.Fatalf("kept %s\nand restored %+v\nwant %+v", text, got, want)
		}
	})
}

// TestAnEntryOfTheVersionBeforeIsRestored reads what it wrote: the grace of a soft
// victim with the patience of its killer.
func TestAnEntryOfTheVersionBeforeIsRestored(t *testing.T) {
	const entry = `{"looked":2000000000,"thresholds":[
		{"signal":"memory.available","value":{"Amount":1073741824,"Fraction":0},"met":5000000000,"acting":true},
		{"signal":"memory.available","value":{"Amount":2147483648,"Fraction":0},"grace":30000000000,"met":31000000000,"acting":true}],
		"pressure":{"MemoryPressure":1000000000},"layout":0,"rests":[7000000000,0,0],"inFlight":[
		{"uid":"hard","signal":"memory.available","hard":true,"since":3000000000,"grace":1000000000},
		{"uid":"soft","signal":"memory.available","since":4000000000,"grace":67000000000}]}`
	var kept eviction.Kept
	require.NoError(t, json.Unmarshal([]byte(entry), &kept))
	cfg := eviction.New(eviction.Config{Thresholds: []eviction.Threshold{
		{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: gi}},
		{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 2 * gi}, Grace: 30 * time.Second},
	}}, eviction.SharedFs)
	cfg.SoftPatience = 7 * time.Second
	got := kept.Restore(&cfg, start, time.Second)
	want := eviction.State{Looked: start.Add(-3 * time.Second), InFlight: []eviction.InFlight{
		{UID: "hard", Decided: start.Add(-4 * time.Second), Signal: eviction.MemoryAvailable, Hard: true, Since: start.Add(-4 * time.Second), Grace: time.Second, Unattended: true},
		{UID: "soft", Decided: start.Add(-5 * time.Second), Signal: eviction.MemoryAvailable, Since: start.Add(-5 * time.Second), Grace: time.Minute, Patience: 7 * time.Second, Unattended: true},
	}}
	want.Thresholds[0] = eviction.Standing{FirstObserved: start.Add(-6 * time.Second), Acting: true}
	want.Thresholds[1] = eviction.Standing{FirstObserved: start.Add(-32 * time.Second), Acting: true}
	want.Pressure[eviction.MemoryPressure].LastObserved = start.Add(-2 * time.Second)
	want.Reclaims[0].Rest = start.Add(6 * time.Second)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestNothingIsRestoredThatTheConfigurationDoesNotHave(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 5 {
			n.pass(t, r, anyKind(r))
		}
		kept := n.state.Keep(&n.cfg, n.now)
		other := n.cfg
		other.Thresholds, other.LocalStorageCapacityIsolation, other.Layout = nil, false, (n.cfg.Layout+1)%4
		for _, before := range n.cfg.Thresholds {
			before.Grace += time.Second
			if before.Hard() {
				before.Value.Amount++
			}
			other.Thresholds = append(other.Thresholds, before)
		}
		got := kept.Restore(&other, n.now, 0)
		got.InFlight, got.Relief = nil, [eviction.NumConditions]eviction.Relief{} // of signals that still have thresholds
		if !got.SameKept(&eviction.State{}) {
			t.Fatalf("restored %+v", got)
		}
		other.Thresholds = nil
		if got := kept.Restore(&other, n.now, 0); !got.SameKept(&eviction.State{}) {
			t.Fatalf("restored %+v without any threshold", got)
		}
	})
}

// rule: M.75
func TestAReportedVictimIsEndedHoweverLateItsPodIsKnown(t *testing.T) {
	for _, reported := range []bool{true, false} {
		cfg, late := eviction.New(eviction.Config{}, eviction.SharedFs), start.Add(time.Hour)
		pod := &eviction.Pod{UID: "hog", Terminal: true}
		st := eviction.State{InFlight: []eviction.InFlight{
			{UID: "hog", Signal: eviction.MemoryAvailable, Hard: true, Since: start, Grace: time.Second, Unattended: true, Reported: reported},
		}}
		st, _ = eviction.Decide(&cfg, st, eviction.Input{Now: late})
		if waits := st.Victim("hog") != nil; waits != reported {
			t.Errorf("reported %t: in flight %t", reported, waits)
		}
		st, d := eviction.Decide(&cfg, st, eviction.Input{Now: late.Add(time.Hour), Candidates: []eviction.Candidate{{Pod: pod}}})
		if resumed := len(d.Resumed) == 1 && d.Resumed[0].Pod == pod && d.Resumed[0].Left == 0 && !st.Victim("hog").Unattended; resumed != reported {
			t.Errorf("reported %t: resumed %+v", reported, d.Resumed)
		}
	}
}
