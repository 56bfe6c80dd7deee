package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/intent"
	"github.com/evictd/evictd/eviction/journal"
)

// mapped is a node whose evictions are in a mapped file before the journal has them.
type mapped struct {
	*node
	memory string // a directory
	kills  int
	loop   *Intents
}

func newMapped(t *testing.T, api bool) *mapped {
	dir, err := os.MkdirTemp("/dev/shm", "keep")
	if err != nil {
		t.Skip("skipped: needs a tmpfs at /dev/shm:", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &mapped{node: newNode(t, api), memory: dir}
	m.kill()
	return m
}

// kill ends the process, whose journal has what was written, and starts another one a second
// later.
func (m *mapped) kill() {
	m.Helper()
	name := func(kills int) string { return fmt.Sprint("evictions-", kills) }
	left, err := os.ReadFile(filepath.Join(m.memory, name(m.kills)))
	m.kills++
	if err == nil { // under another name: a lock ends with the process
		err = os.WriteFile(filepath.Join(m.memory, name(m.kills)), left, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Fatal(err)
	}
	file, err := intent.Open(m.memory, name(m.kills), slog.New(slog.DiscardHandler))
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { file.Close() })
	if m.records, err = journal.Open(m.dir, slog.New(slog.DiscardHandler)); err != nil {
		m.Fatal(err)
	}
	m.now.Up, m.now.Wall = m.now.Up+time.Second, m.now.Wall.Add(time.Second)
	api := m.api
	m.Keeper = New(m.records, file, m.Keeper.clock, api, slog.New(slog.DiscardHandler))
	m.loop = NewIntents(file, api)
	m.state = m.Resume(&m.cfg)
}

// evict has the loop put an eviction; the report of it is returned.
func (m *mapped) evict(uid types.UID, hard bool) control.Report {
	now := time.Now()
	f := eviction.InFlight{UID: uid, Decided: now, Signal: eviction.MemoryAvailable, Hard: hard, Since: now, Grace: time.Minute}
	if !hard {
		f.Patience = m.cfg.SoftPatience
	}
	e := eviction.Eviction{Pod: &eviction.Pod{UID: uid, Namespace: "default", Name: string(uid)}, Signal: f.Signal, Hard: hard, Since: now}
	m.loop.Put(&e, &f)
	m.state.InFlight = append(m.state.InFlight[:len(m.state.InFlight):len(m.state.InFlight)], f)
	e.Message = "of " + string(uid)
	return control.Report{At: now, Eviction: &m.cfg, State: m.state, Decisions: []eviction.Decision{{Evictions: []eviction.Eviction{e}}}}
}

func TestAnEvictionSurvivesAKillAtAnyMoment(t *testing.T) {
	const low = "The node was low on resource: memory. "
	for _, c := range []struct {
		name    string
		api     bool
		before  func(m *mapped)
		want    string // as for node.wants
		message string
	}{
		{"after the first signal", true, func(m *mapped) { m.evict("a", true) }, "a U in flight R", low},
		{"without an API server", false, func(m *mapped) { m.evict("a", true) }, "a in flight", low},
		{"after its report", true, func(m *mapped) { m.Record(m.evict("a", true)) }, "a U in flight R", "of a"},
		{"after the journal was written", true, func(m *mapped) { m.Record(m.evict("a", true)); m.flush() }, "a U in flight R", "of a"},
		{"after its end", true, func(m *mapped) { m.Record(m.evict("a", true)); m.gone("a"); m.leave("a") }, "a U", "of a"},
		{"after the API server had all of it", true, func(m *mapped) {
			m.Record(m.evict("a", true))
			m.gone("a")
			m.leave("a")
			m.Reported(m.Evictions()[0].ID)
		}, "", ""},
		{"where the kill did not begin", true, func(m *mapped) {
			m.evict("a", true)
			m.loop.Withdraw(&m.state.InFlight[0])
		}, "", ""},
		{"before the Eviction API has answered", true, func(m *mapped) { m.evict("a", false) }, "", ""},
		{"and after the report of that", true, func(m *mapped) { m.Record(m.evict("a", false)) }, "", ""},
		{"after the Eviction API was overridden", true, func(m *mapped) {
			m.Record(m.evict("a", false))
			m.flush()
			m.Override("a", "its deadline has passed")
		}, "a U in flight R", "of a"},
		{"after it was overridden before the report", true, func(m *mapped) {
			m.evict("a", false)
			m.Override("a", "a hard threshold was crossed")
		}, "a U in flight R", low},
		{"in a later eviction of the pod", true, func(m *mapped) {
			m.Record(m.evict("a", true))
			m.gone("a")
			m.leave("a")
			m.flush()
			m.evict("a", true)
		}, "a U in flight R", low},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMapped(t, c.api)
			c.before(m)
			for range 2 { // the second process is killed before its journal was written
				m.kill()
				m.wants(c.want)
				for _, i := range m.Evictions() {
					if i.Message != c.message || i.Namespace != "default" || i.Name != "a" {
						t.Errorf("kept %+v, want message %q", i, c.message)
					}
				}
			}
			m.flush()
			if left := m.intents.Entries(); len(left) > 0 {
				t.Errorf("%d intents are left", len(left))
			}
			m.kill()
			m.wants(c.want)
		})
	}
}

func TestAnIntentThatIsOlderThanTheJournalIsDropped(t *testing.T) {
	m := newMapped(t, true)
	m.evict("a", true) // its report is lost
	m.leave("a")
	m.Record(m.evict("a", true))
	m.flush()
	last := m.Evictions()
	m.kill()
	m.wants("a U in flight R")
	if all := m.Evictions(); len(all) != 1 || all[0].ID != last[0].ID || len(m.intents.Entries()) > 0 {
		t.Errorf("kept %+v with %d intents, want %+v", all, len(m.intents.Entries()), last)
	}
}

func TestAnIntentThatCannotBeReadIsDropped(t *testing.T) {
	m := newMapped(t, true)
	m.intents.Put(7, []byte("{"))
	m.intents.Put(8, []byte(`{"uid":"a"}`))
	m.kill()
	m.wants("")
	if left := m.intents.Entries(); len(left) > 0 {
		t.Errorf("%d intents are left", len(left))
	}
}

// TestTheLoopWritesWhatTheKeeperWould compares the text of the loop with encoding/json's.
func TestTheLoopWritesWhatTheKeeperWould(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	pod := &eviction.Pod{UID: "u", Owner: "o", Namespace: "a \"b\" \\ \n\x01", Name: "ä€", Generation: -3}
	for _, hard := range []bool{true, false} {
		for _, signal := range []eviction.Signal{eviction.NodeFsInodesFree, eviction.EmptyDirLimit} {
			e := &eviction.Eviction{Pod: pod, Signal: signal, Hard: hard, Since: now.Add(-time.Second), DisruptionTarget: hard}
			if signal == eviction.EmptyDirLimit {
				e.Message = `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `
			}
			f := &eviction.InFlight{UID: "u", Decided: now, Signal: signal, Hard: hard, Since: now, Grace: 7 * time.Second, Patience: 5}
			i := NewIntents(nil, hard)
			var got record
			text := i.appendRecord(nil, e, f)
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if e.Message == "" {
				e.Message = "The node was low on resource: inodes. "
			}
			want := record{Intent: intentOf(e, f), Reported: !hard}
			want.InFlight = &eviction.KeptVictim{UID: f.UID, Decided: f.Decided, Signal: signal.String(), Hard: hard, Grace: f.Grace, Patience: &f.Patience}
			is, _ := json.Marshal(&got)
			should, _ := json.Marshal(&want)
			if string(is) != string(should) {
				t.Errorf("got  %s\nwant %s", is, should)
			}
		}
	}
}

func TestTheLoopAllocatesNothingForAnIntent(t *testing.T) {
	m := newMapped(t, true)
	now := time.Now()
	pod := &eviction.Pod{UID: "01234567-89ab-cdef-0123-456789abcdef", Owner: "o", Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253)}
	e := &eviction.Eviction{Pod: pod, Signal: eviction.MemoryAvailable, Hard: true, Since: now}
	f := &eviction.InFlight{UID: pod.UID, Decided: now, Signal: e.Signal, Hard: true, Since: now, Grace: time.Second}
	var intents control.Intents = m.loop
	if n := testing.AllocsPerRun(100, func() {
		intents.Put(e, f)
		intents.Withdraw(f)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
