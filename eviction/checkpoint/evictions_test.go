package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
)

// node is a Keeper over a journal in a directory, and the loop that it keeps.
type node struct {
	*testing.T
	*Keeper
	dir     string
	records *journal.Journal
	cfg     eviction.Config
	state   eviction.State
	now     osprocess.Instant
}

func newNode(t *testing.T, api bool) *node {
	n := &node{T: t, dir: t.TempDir(), now: osprocess.Instant{Boot: "a", Up: time.Hour, Wall: time.Now()}}
	n.cfg = eviction.New(eviction.Config{
		Thresholds: []eviction.Threshold{
			{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 1 << 30}},
			{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 2 << 30}, Grace: time.Minute},
		},
		SoftPatience: 30 * time.Second, HardGrace: time.Second,
	}, eviction.SharedFs)
	n.start(api)
	return n
}

func (n *node) start(api bool) {
	n.Helper()
	var err error
	log := slog.New(slog.DiscardHandler)
	if n.records, err = journal.Open(n.dir, log); err != nil {
		n.Fatal(err)
	}
	n.Keeper = New(n.records, nil, func() (osprocess.Instant, error) { return n.now, nil }, api, log)
	n.state = n.Resume(&n.cfg)
}

// flush has the journal write.
func (n *node) flush() {
	n.Helper()
	ended, cancel := context.WithCancel(n.Context())
	cancel()
	if err := n.records.Run(ended); err != nil {
		n.Fatal(err)
	}
}

// crash ends the process and starts another one so long after.
func (n *node) crash(api bool, away time.Duration) {
	n.Helper()
	n.flush()
	n.now.Up, n.now.Wall = n.now.Up+away, n.now.Wall.Add(away)
	n.start(api)
}

func (n *node) decide(uid types.UID, hard bool) {
	now := time.Now()
	f := eviction.InFlight{UID: uid, Decided: now, Signal: eviction.MemoryAvailable, Hard: hard, Since: now, Grace: time.Minute}
	if !hard {
		f.Patience = n.cfg.SoftPatience
	}
	n.state.InFlight = append(slices.Clip(n.state.InFlight), f)
	n.Record(control.Report{At: now, Eviction: &n.cfg, State: n.state, Decisions: []eviction.Decision{{Evictions: []eviction.Eviction{
		{Pod: &eviction.Pod{UID: uid, Namespace: "default", Name: string(uid)}, Signal: eviction.MemoryAvailable, Hard: hard, Message: "of " + string(uid)},
	}}}})
}

// leave takes a victim out of flight.
func (n *node) leave(uid types.UID) {
	n.state.InFlight = slices.DeleteFunc(slices.Clone(n.state.InFlight), func(f eviction.InFlight) bool { return f.UID == uid })
	n.Record(control.Report{At: time.Now(), Eviction: &n.cfg, State: n.state})
}

func (n *node) gone(uid types.UID) {
	n.Record(control.Report{At: time.Now(), Ended: &kill.Result{UID: uid, Gone: time.Now()}})
}

// wants compares the evictions that are kept, with the victims that are in flight again: U
// that is unreported, R whose kill is continued however late.
func (n *node) wants(want string) {
	n.Helper()
	var got []string
	for _, i := range n.Evictions() {
		text := string(i.UID)
		if slices.ContainsFunc(n.Unsent(true), func(u wire.Intent) bool { return u.ID == i.ID }) {
			text += " U"
		}
		if f := n.state.Victim(i.UID); f != nil {
			text += " in flight"
			if f.Reported {
				text += " R"
			}
			if f.ID() != i.ID {
				n.Errorf("%s is in flight as %s, reported as %s", i.UID, f.ID(), i.ID)
			}
		}
		got = append(got, text)
	}
	if all := strings.Join(got, ", "); all != want {
		n.Errorf("kept    %s\nwanted  %s", all, want)
	}
}

func TestOneEntryRestoresTheVictimAndItsReport(t *testing.T) {
	n := newNode(t, true)
	n.decide("running", true)
	n.decide("gone", true)
	n.decide("waits", false)
	n.decide("overridden", false)
	n.Override("overridden", "its deadline has passed")
	n.gone("gone")
	n.leave("gone")
	n.decide("deleted", true)
	n.Reported(n.state.Victim("deleted").ID())
	n.wants("running U in flight, gone U, waits U in flight, overridden U in flight, deleted in flight")
	n.crash(true, time.Second)
	n.wants("running U in flight R, gone U, overridden U in flight R, deleted in flight")
	before := n.Evictions()
	n.crash(true, time.Hour)
	n.wants("running U in flight R, gone U, overridden U in flight R")
	if after := n.Evictions(); fmt.Sprint(after) != fmt.Sprint(slices.Delete(before, 3, 4)) {
		t.Errorf("kept   %+v\nbefore %+v", after, before)
	}
	n.gone("running")
	n.leave("running")
	for _, i := range n.Evictions() {
		n.Reported(i.ID)
	}
	n.leave("overridden")
	n.wants("")
	if left := n.records.Entries(evictionKind); len(left) > 0 {
		t.Errorf("the journal has %v", left)
	}
}

// rule: M.170
func TestAnEvictionThatIsGrantedIsContinued(t *testing.T) {
	n := newNode(t, true)
	n.decide("granted", false)
	n.decide("refused", false)
	n.Granted("granted")
	n.Granted("unknown")
	n.crash(true, time.Second)
	n.wants("granted U in flight R")
	n.gone("granted")
	n.leave("granted")
	n.Reported(n.Evictions()[0].ID)
	n.wants("")
}

// rule: M.134
func TestAContainerInFlightIsRestoredAndIsNoEviction(t *testing.T) {
	n := newNode(t, true)
	now := time.Now()
	f := eviction.InFlight{UID: "web", Container: "app", Decided: now, Signal: eviction.MemoryAvailable, Hard: true, Since: now, Grace: time.Minute}
	n.state.InFlight = []eviction.InFlight{f}
	n.Record(control.Report{At: now, Eviction: &n.cfg, State: n.state})
	n.crash(true, time.Second)
	n.wants("")
	if got := n.state.Victim("web"); got == nil || got.Container != "app" || !got.Unattended {
		t.Fatalf("restored %+v", got)
	}
	n.leave("web")
	n.crash(true, time.Second)
	if got := n.state.Victim("web"); got != nil {
		t.Errorf("restored %+v", got)
	}
}

func TestWithoutAnAPIServerAnEvictionIsKeptUntilItsEnd(t *testing.T) {
	n := newNode(t, false)
	n.decide("running", true)
	n.decide("late", true)
	n.decide("gone", true)
	n.gone("gone")
	n.leave("gone")
	n.wants("running in flight, late in flight")
	n.crash(false, 10*time.Second)
	n.wants("running in flight, late in flight")
	n.now.Boot = "b"
	n.crash(false, time.Second)
	n.wants("")
}

func TestAVictimThatLeavesFlightHasEndedEvenWhereItsEndWasNotReported(t *testing.T) {
	n := newNode(t, true)
	n.decide("a", true)
	n.leave("a")
	if all := n.Evictions(); len(all) != 1 || all[0].Ended.IsZero() {
		t.Errorf("kept %+v", all)
	}
}

func TestNewEvictionOfAPodTakesThePlaceOfItsLast(t *testing.T) {
	n := newNode(t, true)
	n.Override("a", "why")
	n.decide("a", false)
	first := n.Evictions()[0]
	n.gone("a")
	n.leave("a")
	n.decide("a", false)
	if all := n.Evictions(); len(all) != 1 || all[0].ID == first.ID || first.Override != "why" || all[0].Override != "" {
		t.Errorf("first %+v, then %+v", first, all)
	}
}

func TestTheEvictionsAreBounded(t *testing.T) {
	n := newNode(t, true)
	for i := range maxEvictions + 10 {
		uid := types.UID(fmt.Sprint(i))
		n.decide(uid, true)
		n.gone(uid)
		n.leave(uid)
	}
	if all, entries := n.Evictions(), n.records.Entries(evictionKind); len(all) != maxEvictions || all[0].UID != "10" || len(entries) != maxEvictions {
		t.Errorf("%d are kept from %s on, %d in the journal", len(all), all[0].UID, len(entries))
	}
}

// TestAJournalOfTheVersionBeforeLosesNothing starts on what that wrote in the middle of evictions:
// the state with its victims, and the reports to the API server.
func TestAJournalOfTheVersionBeforeLosesNothing(t *testing.T) {
	const (
		state = `{"at":{"boot":"a","up":3599000000000,"wall":"2026-01-02T11:59:59Z"},"looked":0,"thresholds":[],"layout":0,"rests":[0,0,0],"inFlight":[
			{"uid":"running","signal":"memory.available","hard":true,"since":1000000000,"grace":60000000000,"patience":0},
			{"uid":"waits","signal":"memory.available","since":1000000000,"grace":60000000000,"patience":30000000000},
			{"uid":"ended","signal":"memory.available","hard":true,"since":1000000000,"grace":1000000000,"patience":0}]}`
		running = `{"id":"running@5","uid":"running","namespace":"default","name":"running","signal":"memory.available","hard":true,"decided":"1970-01-01T00:00:00.000000005Z","message":"m"}`
		waits   = `{"id":"waits@6","uid":"waits","namespace":"default","name":"waits","signal":"memory.available","decided":"1970-01-01T00:00:00.000000006Z","asked":true}`
		ended   = `{"id":"ended@7","uid":"ended","signal":"memory.available","hard":true,"decided":"1970-01-01T00:00:00.000000007Z","over":"2026-01-02T11:00:00Z"}`
		overdue = `{"id":"overdue@8","uid":"overdue","signal":"memory.available","hard":true,"decided":"1970-01-01T00:00:00.000000008Z","overdue":true}`
	)
	for _, c := range []struct {
		name    string
		api     bool
		state   string
		intents []string
		want    string
	}{
		{"with an API server", true, state, []string{running, waits, ended, overdue}, "running U in flight R, ended U, overdue U in flight R"},
		{"that had recorded all of it", true, state, nil, ""},
		{"without one", false, state, nil, "running in flight, waits in flight, ended in flight"},
		{"reports alone", true, "", []string{running, waits, ended}, "running U in flight R, ended U"},
		{"nothing that can be read", true, "[]", []string{`{}`, `{"id":7}`}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, c.api)
			if c.state != "" {
				_ = n.records.Put(stateKind, "loop", json.RawMessage(c.state))
			}
			for _, text := range c.intents {
				var named struct{ ID any }
				_ = json.Unmarshal([]byte(text), &named)
				_ = n.records.Put(evictionKind, fmt.Sprint(named.ID), json.RawMessage(text))
			}
			n.crash(c.api, 0)
			n.wants(c.want)
			n.crash(c.api, time.Second) // in the form of this version
			n.wants(c.want)
		})
	}
}
