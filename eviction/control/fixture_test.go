package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

const (
	mebi = int64(1) << 20
	gibi = int64(1) << 30
)

// fixture is a loop with fakes of all its ports, in simulated time. It keeps calls of
// the fakes as lines, each with its time.
type fixture struct {
	*control.Loop
	*testing.T
	begun     time.Time
	stop      context.CancelFunc
	ended     chan struct{} // closed when Run has returned
	sensor    *sensor
	waiter    *waiter
	killer    *killer
	scanner   *scanner
	reclaimer *reclaimer
	pods      []*pod                  // at the beginning
	reports   <-chan []control.Report // those of the whole run, at its end

	mu    sync.Mutex
	lines []string
}

// setting is a fixture before its loop runs.
type setting struct {
	thresholds []eviction.Threshold
	pods       []*pod
	node       stats.Node
	scanner    *scanner   // nil: none
	reclaimer  *reclaimer // nil: none
	limits     bool       // local-storage limits are enforced
	unknown    bool       // pods run that were not set, until others are set
	processors int
	dryRun     bool
	relief     bool                 // what victims free is measured
	late       time.Duration        // by which SIGKILL is sent after the end of a grace
	unread     bool                 // the reports are not read
	read       func(control.Report) // is called with each report that is read; may be nil
	pulse      control.Pulse
	before     func(*fixture)                 // before the loop runs
	wrap       func(*fixture, *control.Ports) // replaces ports; may be nil
}

const housekeeping = 10 * time.Second

func (s *setting) config() control.Config {
	return control.Config{
		Eviction: eviction.New(eviction.Config{
			Thresholds: s.thresholds, MaxPodGracePeriod: 60, PressureTransitionPeriod: time.Minute, LocalStorageCapacityIsolation: s.limits,
			HardGrace: time.Second, DryRun: s.dryRun, MeasuresRelief: s.relief,
		}, eviction.SharedFs),
		Processors:           s.processors,
		HousekeepingInterval: housekeeping,
	}
}

// withLoop runs a test with a loop, which must end with all its goroutines after the
// test has returned.
func withLoop(t *testing.T, s setting, test func(*fixture)) {
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{T: t, begun: time.Now(), sensor: &sensor{now: s.node}, scanner: s.scanner, reclaimer: s.reclaimer, pods: s.pods}
		w.start(s)
		test(w)
		w.stop()
		<-w.ended
	})
}

// start runs a loop; the loop before it has ended.
func (w *fixture) start(s setting) {
	w.killer = &killer{fixture: w, results: make(chan kill.Result, 8), graces: map[types.UID]time.Duration{}, sigkill: map[types.UID]time.Time{}, late: s.late}
	w.waiter = &waiter{notified: make(chan string, 1)}
	ports := control.Ports{Sensor: w.sensor, Waiter: w.waiter, Killer: w.killer, Pulse: s.pulse}
	if s.scanner != nil {
		s.scanner.done = make(chan struct{}, 1)
		ports.DiskScanner = s.scanner
	}
	if s.reclaimer != nil {
		s.reclaimer.fixture, s.reclaimer.reclaimed = w, make(chan eviction.Signal, 1)
		ports.Reclaimer = s.reclaimer
	}
	if s.unknown {
		ports.UnknownPods = unknownBeside(len(s.pods))
	}
	if s.wrap != nil {
		s.wrap(w, &ports)
	}
	w.Loop = control.New(s.config(), ports, slog.New(slog.DiscardHandler))
	w.setPods(s.pods...)
	if s.before != nil {
		s.before(w)
	}
	if !s.unread {
		w.reports = w.collect(s.read)
	}
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan struct{})
	w.stop, w.ended = cancel, ended
	go func() {
		defer close(ended)
		if err := w.Loop.Run(ctx); err != nil {
			w.Errorf("Run: %v", err)
		}
	}()
}

// unknownBeside is the number of pods beside which others run.
type unknownBeside int

// UnknownPods implements control.UnknownPods.
func (n unknownBeside) UnknownPods(known []control.Pod) bool { return len(known) == int(n) }

func (w *fixture) collect(read func(control.Report)) <-chan []control.Report {
	all, of := make(chan []control.Report, 1), w.Reports()
	go func() {
		var reports []control.Report
		for r := range of {
			if reports = append(reports, r); read != nil {
				read(r)
			}
		}
		all <- reports
	}()
	return all
}

// reported ends the loop and returns what it reported.
func (w *fixture) reported() []control.Report {
	w.stop()
	return <-w.reports
}

// setPods sets the pods of the node.
func (w *fixture) setPods(pods ...*pod) {
	var all []control.Pod
	for _, p := range pods {
		all = append(all, p.handled())
	}
	w.SetPods(all)
}

// at waits for an instant of the test, and then until every goroutine is blocked.
func (w *fixture) at(d time.Duration) {
	time.Sleep(d - time.Since(w.begun))
	synctest.Wait()
}

func (w *fixture) write(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.begun).Round(time.Millisecond)
	w.lines = append(w.lines, at.String()+" "+fmt.Sprintf(format, args...))
}

// expect compares the lines with those that are expected.
func (w *fixture) expect(lines ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.lines, lines) {
		w.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(w.lines, "\n  "), strings.Join(lines, "\n  "))
	}
}

// sensor returns the reading that was set, and counts the calls.
type sensor struct {
	mu    sync.Mutex
	now   stats.Node
	reads []time.Time
	takes time.Duration // of processor time, 0 is a microsecond: no two readings are of one instant
	stuck chan struct{} // closed when Read may return; nil: at once
}

// Read measures.
func (s *sensor) Read(n *stats.Node, ask collect.Ask) {
	time.Sleep(max(s.takes, time.Microsecond))
	s.mu.Lock()
	stuck := s.stuck
	s.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*n = s.now
	n.Time = time.Now()
	s.reads = append(s.reads, n.Time)
}

func (s *sensor) set(n stats.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = n
}

func (s *sensor) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reads)
}

// used is the processor time of all readings.
func (s *sensor) used() time.Duration { return time.Duration(s.count()) * s.takes }

// gap is the time between the last two readings.
func (s *sensor) gap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.reads) - 1
	return s.reads[last].Sub(s.reads[last-1]).Round(100 * time.Microsecond)
}

// waiter is a control.Waiter of channels and simulated time.
type waiter struct {
	notified chan string

	mu    sync.Mutex
	aims  collect.MemoryLevels
	armed collect.Armed
	wakes int // calls of Wake
}

func (b *waiter) Wait(d time.Duration) string {
	select {
	case source := <-b.notified:
		return source
	case <-time.After(d):
		return ""
	}
}

func (b *waiter) Wake() {
	b.mu.Lock()
	b.wakes++
	b.mu.Unlock()
	select {
	case b.notified <- "":
	default: // it wakes anyway
	}
}

// notify wakes by a notification of the kernel, in the place of a Wake.
func (b *waiter) notify(source string) {
	select {
	case <-b.notified:
	default:
	}
	b.notified <- source
}

func (b *waiter) SetLevels(a collect.MemoryLevels) collect.Armed {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aims = a
	return b.armed
}

func (b *waiter) woken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wakes
}

func (b *waiter) aimed() collect.MemoryLevels {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.aims
}

// memory is a node of 64 GiB that has so much left, with nothing else measured.
func memory(available int64) stats.Node {
	return stats.Node{Memory: stats.Memory{Limit: stats.Known(64 * gibi), Usage: stats.Known(64*gibi - available)}}
}

// disk adds a disk of 100 GiB to what else is measured.
func disk(n stats.Node, available int64) stats.Node {
	n.NodeFs = stats.Filesystem{Capacity: stats.Known(100 * gibi), Available: stats.Known(available)}
	return n
}

// pids adds a table of 32768 processes to what else is measured.
func pids(n stats.Node, available int64) stats.Node {
	n.Tasks = stats.Tasks{Max: stats.Known(32768), Running: stats.Known(32768 - available)}
	return n
}

func hard(s eviction.Signal, amount int64) eviction.Threshold {
	return eviction.Threshold{Signal: s, Value: eviction.Value{Amount: amount}}
}

func soft(s eviction.Signal, amount int64, grace time.Duration) eviction.Threshold {
	return eviction.Threshold{Signal: s, Value: eviction.Value{Amount: amount}, Grace: grace}
}
