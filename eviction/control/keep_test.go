package control_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/checkpoint"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// fakeJournal is a journal in memory, and the clocks of a machine. It counts how often the
// state was written.
type fakeJournal struct {
	data   map[string]journal.Entry // by id
	writes atomic.Int32
	turns  []string // of the condition of memory
	log    strings.Builder

	began  time.Time // the test
	boot   string
	booted time.Time
	off    time.Duration // of the wall clock
	fault  error         // of the clocks
}

func (p *fakeJournal) Entries(kind string) (entries []journal.Entry) {
	for _, id := range slices.Sorted(maps.Keys(p.data)) {
		if p.data[id].Kind == kind {
			entries = append(entries, p.data[id])
		}
	}
	return entries
}

func (p *fakeJournal) Put(kind, id string, value any) error {
	if kind == "state" {
		p.writes.Add(1)
	}
	data, err := json.Marshal(value)
	if p.data == nil {
		p.data = map[string]journal.Entry{}
	}
	p.data[id] = journal.Entry{Kind: kind, ID: id, Data: data}
	return err
}

func (p *fakeJournal) Drop(_, id string) { delete(p.data, id) }

func (p *fakeJournal) Changes() uint64 { return 0 }

func (p *fakeJournal) Written(func(uint64)) {}

func (p *fakeJournal) clock() (osprocess.Instant, error) {
	return osprocess.Instant{Boot: p.boot, Up: time.Since(p.booted), Wall: time.Now().Round(0).Add(p.off)}, p.fault
}

func (p *fakeJournal) keeper() *checkpoint.Keeper {
	return checkpoint.New(p, nil, p.clock, false, slog.New(slog.NewTextHandler(&p.log, nil)))
}

// keeping makes a setting whose loop continues with what the journal has, and keeps what
// is reported there.
func (p *fakeJournal) keeping(s setting) setting {
	keeper, raised := p.keeper(), false
	s.before = func(w *fixture) {
		cfg := s.config().Eviction
		if p.began.IsZero() {
			p.began, p.booted = w.begun, w.begun
		}
		w.Resume(keeper.Resume(&cfg))
	}
	s.read = func(r control.Report) {
		keeper.Record(r)
		if now := r.State.Pressure[eviction.MemoryPressure].Reported; r.Ended == nil && now != raised {
			raised = now
			p.turns = append(p.turns, fmt.Sprintf("%v %v", r.At.Sub(p.began).Round(time.Second), now))
		}
	}
	return s
}

// rule: M.50
// rule: M.51
func TestWhatTheLoopRemembersOutlivesIt(t *testing.T) {
	softly := func(grace time.Duration) []eviction.Threshold {
		return []eviction.Threshold{soft(eviction.MemoryAvailable, gibi, grace)}
	}
	stubborn := func(name string, held int64) *pod { return ending(using(name, held), immortal, immortal) }
	grave := setting{thresholds: softly(30 * time.Second), node: short, pods: []*pod{stubborn("a", gibi)}}
	slow := setting{thresholds: softly(time.Minute), node: short, pods: grave.pods}
	calm := setting{thresholds: memoryHard, node: short}
	first := func(s setting, pods ...*pod) setting { s.pods = pods; return s }
	recovers := func(w *fixture, _ *fakeJournal) { w.sensor.set(plenty) }
	reboots := func(off time.Duration) func(*fixture, *fakeJournal) {
		return func(w *fixture, p *fakeJournal) {
			w.sensor.set(plenty)
			p.boot, p.booted, p.off = "b", time.Now(), off
		}
	}
	for _, c := range []struct {
		name        string
		before      setting
		crash, back int // seconds
		meanwhile   func(*fixture, *fakeJournal)
		after       func(*setting) // nil: as before
		until       time.Duration
		kills       []string
		turns       []string
	}{
		{"a grace continues after a restart", grave, 22, 23, nil, nil, 50 * time.Second,
			[]string{"30s kill a in 1m0s"}, []string{"0s true", "23s true"}},
		{"time without passes beyond two intervals does not count", slow, 22, 62, nil, nil, 90 * time.Second,
			[]string{"1m22s kill a in 1m0s"}, []string{"0s true", "1m2s true"}},
		{"a grace begins again where that time is longer than the grace", grave, 22, 92, nil, nil, 125 * time.Second,
			[]string{"2m2s kill a in 1m0s"}, []string{"0s true", "1m32s true"}},
		{"a grace begins again where its threshold has changed", grave, 22, 23, nil, func(s *setting) { s.thresholds = softly(31 * time.Second) }, time.Minute,
			nil, []string{"0s true", "23s true"}},
		{"a condition is held for what is left of its period", calm, 22, 23, recovers, nil, 2 * time.Minute,
			nil, []string{"0s true", "23s true", "1m20s false"}},
		{"wherever the wall clock was set meanwhile", calm, 22, 23, func(w *fixture, p *fakeJournal) { recovers(w, p); p.off = -24 * time.Hour }, nil, 2 * time.Minute,
			nil, []string{"0s true", "23s true", "1m20s false"}},
		{"or set forward", calm, 22, 23, func(w *fixture, p *fakeJournal) { recovers(w, p); p.off = 24 * time.Hour }, nil, 2 * time.Minute,
			nil, []string{"0s true", "23s true", "1m20s false"}},
		{"over a reboot by the wall clock", calm, 22, 33, reboots(0), nil, 2 * time.Minute,
			nil, []string{"0s true", "33s true", "1m20s false"}},
		{"not where that was set back", calm, 22, 33, reboots(-time.Minute), nil, 2 * time.Minute, nil, []string{"0s true"}},
		{"nor where it says that the period is over", calm, 22, 33, reboots(time.Hour), nil, 2 * time.Minute, nil, []string{"0s true"}},
		{"nor where no threshold of before raises it any more", calm, 22, 23, recovers,
			func(s *setting) {
				s.thresholds = []eviction.Threshold{hard(eviction.MemoryAvailable, gibi/2), diskHard[0]}
			}, 2 * time.Minute,
			nil, []string{"0s true"}},
		{"a victim in flight has what is left of its grace, and none is killed in its place", first(grave, stubborn("a", gibi), using("b", mebi)), 35, 40, nil, nil, 50 * time.Second,
			[]string{"30s kill a in 1m0s", "40s kill a in 50s"}, []string{"0s true", "40s true"}},
		{"a hard one, too", first(calm, stubborn("a", gibi), using("b", mebi)), 1, 5, nil, nil, 10 * time.Second,
			[]string{"0s kill a", "5s kill a"}, []string{"0s true", "5s true"}},
		{"one whose pod is removed is waited for until it is overdue", first(calm, stubborn("a", gibi)), 1, 5, nil,
			func(s *setting) { s.pods = []*pod{stubborn("b", mebi)} }, 15 * time.Second,
			[]string{"0s kill a", "11s kill b"}, []string{"0s true", "5s true"}},
		{"none over a reboot: what runs then is another", first(grave, stubborn("a", gibi)), 35, 40, reboots(0), nil, 50 * time.Second,
			[]string{"30s kill a in 1m0s"}, []string{"0s true", "40s true"}},
		{"a victim that is overdue is chosen again", first(calm, stubborn("a", gibi)), 1, 15, nil, nil, 16 * time.Second,
			[]string{"0s kill a", "15s kill a"}, []string{"0s true", "15s true"}},
		{"one of a threshold that is gone is dropped", first(calm, stubborn("a", gibi)), 1, 5, nil,
			func(s *setting) { s.thresholds = diskHard }, 15 * time.Second, []string{"0s kill a"}, []string{"0s true"}},
		{"a dry run kills no victim of a run before", first(calm, stubborn("a", gibi)), 1, 5, nil,
			func(s *setting) { s.dryRun = true }, 15 * time.Second, []string{"0s kill a"}, []string{"0s true", "5s true"}},
		{"and leaves no victim", func() setting { s := first(calm, stubborn("a", gibi)); s.dryRun = true; return s }(), 1, 5, nil,
			func(s *setting) { s.dryRun = false }, 6 * time.Second, []string{"5s kill a"}, []string{"0s true", "5s true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &fakeJournal{boot: "a"}
			withLoop(t, p.keeping(c.before), func(w *fixture) {
				w.at(time.Duration(c.crash) * time.Second)
				w.stop()
				<-w.ended
				if c.meanwhile != nil {
					c.meanwhile(w, p)
				}
				w.at(time.Duration(c.back) * time.Second)
				if c.after != nil {
					c.after(&c.before)
				}
				w.start(p.keeping(c.before))
				w.at(c.until)
				w.expect(c.kills...)
				if !slices.Equal(p.turns, c.turns) {
					t.Errorf("the condition turned %q, want %q", p.turns, c.turns)
				}
			})
		})
	}
}

func TestAVictimOfBeforeTheStartIsDroppedWhereItIsOverdueBeforeItsPodIsKnown(t *testing.T) {
	p := &fakeJournal{boot: "a"}
	s := setting{thresholds: memoryHard, node: short, pods: []*pod{ending(using("a", gibi), immortal)}}
	withLoop(t, p.keeping(s), func(w *fixture) {
		w.at(time.Second)
		w.stop()
		<-w.ended
		s.pods = nil
		w.start(p.keeping(s))
		w.sensor.set(plenty)
		w.at(15 * time.Second)
		w.setPods(w.pods...)
		w.at(20 * time.Second)
		w.expect("0s kill a")
	})
}

func TestWhatCannotBeReadOrDatedIsNotRestoredAndLoggedOnce(t *testing.T) {
	cfg := (&setting{thresholds: memoryHard}).config().Eviction
	with := func(text string) map[string]journal.Entry {
		return map[string]journal.Entry{"loop": {Kind: "state", ID: "loop", Data: json.RawMessage(text)}}
	}
	for name, p := range map[string]*fakeJournal{
		"foreign":  {data: with(`["hello"]`)},
		"no clock": {data: with(`{}`), fault: errors.New("no such file")},
		"no time":  {data: with(`{"at":{"boot":"b","wall":"2126-01-02T12:00:00Z"},"pressure":{"MemoryPressure":1}}`), boot: "a", booted: time.Now()},
	} {
		if st := p.keeper().Resume(&cfg); !st.SameKept(&eviction.State{}) || strings.Count(p.log.String(), "is not restored") != 1 {
			t.Errorf("%s: %+v, log %q", name, st, &p.log)
		}
	}
}

func TestTheJournalIsWrittenWhileAThresholdIsMetAndOtherwiseNot(t *testing.T) {
	p := &fakeJournal{}
	withLoop(t, p.keeping(setting{thresholds: memoryHard, node: plenty, pods: []*pod{ending(using("a", gibi), immortal)}}), func(w *fixture) {
		written := func(until time.Duration) int {
			before := p.writes.Load()
			w.at(until)
			return int(p.writes.Load() - before)
		}
		if n := written(10 * time.Minute); n != 1 {
			t.Errorf("%d writes while nothing was low, want that of the start", n)
		}
		w.sensor.set(short)
		if n := written(11 * time.Minute); n < 6 || n > 10 { // 6 housekeeping passes, the decision, and those that follow it
			t.Errorf("%d writes in a minute of pressure", n)
		}
		w.sensor.set(plenty)
		written(11*time.Minute + 15*time.Second)
		if n := written(30 * time.Minute); n != 0 {
			t.Errorf("%d writes after it", n)
		}
	})
}

// relievedBy is a node that is short of memory until a pod has ended.
type relievedBy struct {
	*sensor
	hog *pod
}

// Read implements control.Sensor.
func (s relievedBy) Read(n *stats.Node, ask collect.Ask) {
	s.sensor.Read(n, ask)
	s.hog.mu.Lock()
	defer s.hog.mu.Unlock()
	if n.Memory = short.Memory; s.hog.usage.Processes == stats.Known(0) {
		n.Memory = plenty.Memory
	}
}

// TestACrashAtAnyMomentEvictsNoPodTwice crashes the loop on every way from a
// crossing to the victim's end, soft and hard, and starts it again soon or late.
func TestACrashAtAnyMomentEvictsNoPodTwice(t *testing.T) {
	for _, threshold := range []eviction.Threshold{memoryHard[0], soft(eviction.MemoryAvailable, gibi, 15*time.Second)} {
		for crash := time.Duration(0); crash < 40*time.Second; crash += 1300 * time.Millisecond {
			for _, away := range []time.Duration{time.Millisecond, 5 * time.Second} {
				p := &fakeJournal{boot: "a"}
				hog := &pod{name: "hog", grace: 8, usage: using("", 63*gibi).usage, ends: []end{{after: 6 * time.Second}, {after: 6 * time.Second}}}
				decided := map[string]int{}
				s := setting{thresholds: []eviction.Threshold{threshold}, pods: []*pod{hog, requesting(using("b", mebi), gibi)}}
				s.wrap = func(w *fixture, ports *control.Ports) { ports.Sensor = relievedBy{w.sensor, hog} }
				keeping := func() setting {
					k := p.keeping(s)
					keep := k.read
					k.read = func(r control.Report) {
						keep(r)
						for _, d := range r.Decisions {
							for _, e := range d.Evictions {
								decided[e.Pod.Name]++
							}
						}
					}
					return k
				}
				withLoop(t, keeping(), func(w *fixture) {
					w.at(crash)
					w.stop()
					<-w.ended
					w.at(crash + away)
					w.start(keeping())
					w.at(2 * time.Minute)
				})
				if decided["hog"] != 1 || decided["b"] != 0 {
					t.Errorf("crashed after %v for %v, grace %v: decided %v", crash, away, threshold.Grace, decided)
				}
			}
		}
	}
}
