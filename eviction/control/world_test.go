package control_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
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

// world is everything around a loop, scripted, in simulated time. It keeps what
// was done to it as lines, each with its time.
type world struct {
	*control.Loop
	*testing.T
	begun   time.Time
	stop    context.CancelFunc
	ended   chan struct{} // closed when Run has returned
	sensor  *sensor
	bell    *bell
	killer  *killer
	survey  *survey
	freer   *freer
	pods    []*pod                  // at the beginning
	reports <-chan []control.Report // those of the whole run, at its end

	mu    sync.Mutex
	lines []string
}

// setting is a world before it begins.
type setting struct {
	thresholds []eviction.Threshold
	pods       []*pod
	node       stats.Node
	survey     *survey // nil: none
	freer      *freer  // nil: none
	limits     bool    // local-storage limits are enforced
	strangers  bool    // pods run that nobody told of, until others are set
	enough     bool    // as many victims as are enough go in a pass
	dryRun     bool
	unread     bool // nobody reads the reports
	pulse      control.Pulse
	before     func(*world) // before the loop runs
}

const housekeeping = 10 * time.Second

func (s *setting) config() control.Config {
	return control.Config{
		Eviction: eviction.New(eviction.Config{
			Thresholds: s.thresholds, MaxPodGracePeriod: 60, PressureTransitionPeriod: time.Minute, LocalStorageCapacityIsolation: s.limits, EnoughVictims: s.enough,
		}, eviction.SharedFs),
		HousekeepingInterval: housekeeping,
		HardGrace:            time.Second,
		DryRun:               s.dryRun,
	}
}

// within plays a script in a world; the loop runs until the script returns, and
// must end then with all that it began.
func within(t *testing.T, s setting, script func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, begun: time.Now(), ended: make(chan struct{}), sensor: &sensor{now: s.node}, survey: s.survey, freer: s.freer, pods: s.pods}
		w.killer = &killer{world: w, results: make(chan kill.Result, 8), hastened: map[types.UID]time.Duration{}}
		w.bell = &bell{rung: make(chan string, 1)}
		ports := control.Ports{Sensor: w.sensor, Waiter: w.bell, Killer: w.killer, Pulse: s.pulse}
		if s.survey != nil {
			s.survey.done = make(chan struct{}, 1)
			ports.Survey = s.survey
		}
		if s.freer != nil {
			s.freer.world, s.freer.reclaimed = w, make(chan eviction.Signal, 1)
			ports.Reclaimer = s.freer
		}
		if s.strangers {
			ports.Census = census(len(s.pods))
		}
		w.Loop = control.New(s.config(), ports, slog.New(slog.DiscardHandler))
		w.settle(s.pods...)
		if s.before != nil {
			s.before(w)
		}
		if !s.unread {
			w.reports = w.collect()
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.stop = cancel
		defer cancel()
		go func() {
			defer close(w.ended)
			if err := w.Loop.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		}()
		script(w)
		cancel()
		<-w.ended
	})
}

// census is the number of pods with which there are strangers beside them.
type census int

func (c census) Strangers(known []control.Pod) bool { return len(known) == int(c) }

func (w *world) collect() <-chan []control.Report {
	all := make(chan []control.Report, 1)
	go func() {
		var reports []control.Report
		for r := range w.Reports() {
			reports = append(reports, r)
		}
		all <- reports
	}()
	return all
}

// told ends the loop and returns what it reported.
func (w *world) told() []control.Report {
	w.stop()
	return <-w.reports
}

// settle makes the pods those of the node.
func (w *world) settle(pods ...*pod) {
	var all []control.Pod
	for _, p := range pods {
		all = append(all, p.handled())
	}
	w.SetPods(all)
}

// at waits for an instant of the world, and until all has come to rest then.
func (w *world) at(d time.Duration) {
	time.Sleep(d - time.Since(w.begun))
	synctest.Wait()
}

func (w *world) write(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.begun).Round(time.Millisecond)
	w.lines = append(w.lines, at.String()+" "+fmt.Sprintf(format, args...))
}

// wants holds what was done against the lines wanted.
func (w *world) wants(lines ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.lines, lines) {
		w.Errorf("was done:\n  %s\nwanted:\n  %s", strings.Join(w.lines, "\n  "), strings.Join(lines, "\n  "))
	}
}

// sensor tells what it was set to, and counts how often it is asked.
type sensor struct {
	mu    sync.Mutex
	now   stats.Node
	reads []time.Time
	stuck chan struct{} // closed when Read may return; nil: at once
}

// Read takes a microsecond: no two readings are of one instant.
func (s *sensor) Read(n *stats.Node) {
	time.Sleep(time.Microsecond)
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

// gap is the time between the last two readings.
func (s *sensor) gap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.reads) - 1
	return s.reads[last].Sub(s.reads[last-1]).Round(100 * time.Microsecond)
}

// bell is a control.Waiter of channels and simulated time.
type bell struct {
	rung chan string

	mu    sync.Mutex
	aims  collect.Aims
	armed bool
}

func (b *bell) Wait(d time.Duration) string {
	select {
	case source := <-b.rung:
		return source
	case <-time.After(d):
		return ""
	}
}

func (b *bell) Wake() {
	select {
	case b.rung <- "":
	default: // it wakes anyway
	}
}

// ring rings by a notice of the kernel, in the place of a Wake.
func (b *bell) ring(source string) {
	select {
	case <-b.rung:
	default:
	}
	b.rung <- source
}

func (b *bell) Aim(a collect.Aims) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.aims = a
	return b.armed
}

func (b *bell) aimed() collect.Aims {
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

// pod is a pod of the world, its own meter and what there is to kill.
type pod struct {
	name    string
	grace   int64 // seconds, 0: the pod does not say
	request int64 // bytes of memory
	limited bool  // has a local-storage limit, which it keeps
	lost    bool  // nothing to kill was found
	lingers bool  // its processes are not reaped when they have ended
	fault   error // of measuring
	usage   stats.Pod
	ends    []end // of its kills in turn; those after the last are gone after 100ms

	mu sync.Mutex
}

// end is how a kill ends.
type end struct {
	refused error         // by Kill
	after   time.Duration // the result comes so long after; negative: never
	err     error         // of the result; nil: the pod is gone
}

// using makes a pod of one process that uses so much memory.
func using(name string, bytes int64) *pod {
	return &pod{name: name, usage: stats.Pod{Memory: stats.Known(bytes), Processes: stats.Known(1)}}
}

// storing makes a pod of one process that has written so much.
func storing(name string, bytes int64) *pod {
	p := using(name, mebi)
	p.usage.Containers = []stats.Container{{Rootfs: stats.Known(bytes)}}
	return p
}

func (p *pod) handled() control.Pod {
	digest := &eviction.Pod{UID: types.UID(p.name), Namespace: "default", Name: p.name, MemoryRequest: p.request, QOS: v1.PodQOSBestEffort, Containers: []eviction.Container{{Name: "c"}}}
	if p.grace > 0 {
		digest.TerminationGracePeriod = &p.grace
	}
	if p.limited {
		digest.StorageLimit = quantity(1000 * gibi)
	}
	handled := control.Pod{Pod: digest, Meter: p, Target: p}
	if p.lost {
		handled.Target = nil
	}
	return handled
}

// Read implements control.Meter.
func (p *pod) Read(s *stats.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	*s = stats.Pod{
		Time: time.Now(), Memory: p.usage.Memory, Processes: p.usage.Processes, Threads: p.usage.Threads,
		Containers: append(s.Containers[:0], p.usage.Containers...), Volumes: append(s.Volumes[:0], p.usage.Volumes...),
	}
	return p.fault
}

// ReadMemory implements control.Meter.
func (p *pod) ReadMemory(s *stats.Pod, _ bool) error { return p.Read(s) }

// AppendProcesses, Kill and Populated make the pod a kill.Target.
func (p *pod) AppendProcesses(pids []int) ([]int, error) { return pids, fs.ErrNotExist }
func (p *pod) Kill() error                               { return nil }
func (p *pod) Populated() (bool, error)                  { return false, nil }

func (p *pod) next() end {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ends) == 0 {
		return end{after: 100 * time.Millisecond}
	}
	next := p.ends[0]
	p.ends = p.ends[1:]
	return next
}

func (p *pod) gone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usage = stats.Pod{Processes: stats.Known(0)}
	if p.lingers {
		p.usage.Threads = stats.Known(1)
	}
}

func (p *pod) vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fs.ErrNotExist
}

func (p *pod) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usage.Threads = stats.Known(0)
}

// killer ends pods as they say themselves.
type killer struct {
	*world
	results  chan kill.Result
	hastened map[types.UID]time.Duration // to the shortest grace each
}

func (k *killer) Kill(v kill.Victim) error {
	p := v.Target.(*pod)
	e := p.next()
	if e.refused != nil {
		k.write("kill %s: %v", v.UID, e.refused)
		return e.refused
	}
	if v.Grace <= time.Second {
		k.write("kill %s", v.UID)
	} else {
		k.write("kill %s in %v", v.UID, v.Grace)
	}
	if e.after < 0 {
		return nil
	}
	signalled := time.Now()
	time.AfterFunc(e.after, func() {
		r := kill.Result{UID: v.UID, Signalled: signalled, Err: e.err}
		if e.err == nil {
			p.gone()
			r.Gone, r.Freed = time.Now(), stats.Known(mebi)
		}
		k.results <- r
	})
	return nil
}

func (k *killer) Hasten(uid types.UID, grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if shortest, ok := k.hastened[uid]; !ok || grace < shortest {
		k.hastened[uid] = grace
	}
}

func (k *killer) Results() <-chan kill.Result { return k.results }

// freer frees so much of the disk so long after it was asked to; never where
// that is negative.
type freer struct {
	*world
	takes     time.Duration
	frees     int64
	reclaimed chan eviction.Signal
}

func (f *freer) Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, need eviction.Need) {
	f.write("free %d of %v by %v", need.Bytes, s, steps)
	if f.takes < 0 {
		return
	}
	time.AfterFunc(f.takes, func() {
		f.sensor.mu.Lock()
		f.sensor.now.NodeFs.Available = f.sensor.now.NodeFs.Available.Plus(stats.Known(f.frees))
		f.sensor.mu.Unlock()
		f.reclaimed <- s
	})
}

func (f *freer) Reclaimed() <-chan eviction.Signal { return f.reclaimed }

// survey is complete so long after it was asked for; never where that is
// negative. A round begins a millisecond after the request.
type survey struct {
	takes time.Duration
	done  chan struct{}

	mu     sync.Mutex
	since  time.Time
	rounds int
}

func (s *survey) Request() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds++
	if s.takes < 0 {
		return
	}
	begun := time.Now().Add(time.Millisecond)
	time.AfterFunc(s.takes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.since = begun
		s.done <- struct{}{}
	})
}

func (s *survey) Since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

func (s *survey) Done() <-chan struct{} { return s.done }

func (s *survey) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds
}
