// Package control is the loop that senses, decides and kills. It waits for
// nobody: pods come in and reports go out over bounded queues, and nothing on
// their other sides can hold it up. It never decides by itself: eviction does.
package control

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// Sensor reads the node-level figures and the time; what it cannot read stays
// unknown. It is called at every pass and must not allocate.
type Sensor interface {
	Read(*stats.Node)
}

// Meter reads the figures of one pod; what it cannot read stays unknown. The
// error is fs.ErrNotExist where the pod has ended.
type Meter interface {
	Read(*stats.Pod) error
	// ReadMemory is Read without the processes, and without the containers if not
	// asked for. Once it was called it opens nothing and allocates nothing.
	ReadMemory(s *stats.Pod, containers bool) error
}

// Waiter is where the loop sleeps, and what the kernel wakes it by.
type Waiter interface {
	// Wait sleeps until something rings, Wake is called or d has passed, and
	// names what rang; "" for the other two.
	Wait(d time.Duration) (source string)
	// Wake ends the present Wait, or the next, from any goroutine.
	Wake()
	// Aim says where the nearest hard thresholds of memory are. It never blocks,
	// and returns whether the kernel tells when they are crossed.
	Aim(collect.Aims) bool
}

// Killer ends pods in goroutines of its own.
type Killer interface {
	Kill(kill.Victim) error
	Hasten(uid types.UID, grace time.Duration)
	Results() <-chan kill.Result
}

// Pod is a pod of the node as the loop handles it.
type Pod struct {
	*eviction.Pod
	// Meter measures the pod; nil where it cannot be measured.
	Meter Meter
	// Target is what there is to kill; nil where nothing was found: then the pod
	// is never chosen.
	Target kill.Target
	// Usage reads what the pod holds, from any goroutine; nil if unknown.
	Usage func() stats.Amount
}

// Reclaimer frees what the node can free without ending a pod, in a goroutine of
// its own.
type Reclaimer interface {
	// Reclaim begins to free what a signal's disk needs, and returns at once.
	Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, need eviction.Need)
	// Reclaimed receives the signal when that has ended, whatever came of it.
	Reclaimed() <-chan eviction.Signal
}

// Survey measures what pods hold on disks, in a goroutine of its own.
type Survey interface {
	// Request asks for a new round and returns at once.
	Request()
	// Since is when the last complete round began.
	Since() time.Time
	// Done receives when a round is complete.
	Done() <-chan struct{}
}

// Census knows of pods that the loop was not told of.
type Census interface {
	// Strangers says whether processes run in the place of a pod that is none of
	// these. It is asked before a pod within its request goes.
	Strangers([]Pod) bool
}

// Pulse is felt by whoever watches over the loop. It must not wait.
type Pulse interface {
	// Beat tells that a pass is complete that began at that time.
	Beat(time.Time)
}

// Config of the loop.
type Config struct {
	// Eviction is complete for the layout of the disks (eviction.New).
	Eviction eviction.Config
	// MemoryModel chooses which memory counts as available.
	MemoryModel stats.MemoryModel
	// HousekeepingInterval is the period of the regular pass.
	HousekeepingInterval time.Duration
	// HardGrace is what victims of hard thresholds are given, from zero to the
	// one second that is announced; less where the signal would run out.
	HardGrace time.Duration
	// SoftPatience is for how long the killer may wait before it begins with a
	// soft victim, which counts as in flight meanwhile.
	SoftPatience time.Duration
	// DryRun decides and reports, and touches nothing.
	DryRun bool
}

// Source says what woke the loop for a pass: one of these, or what the Waiter
// calls it.
type Source string

// The sources of the loop's own.
const (
	Housekeeping Source = "housekeeping"
	Poll         Source = "poll"
	VictimGone   Source = "victim-gone"
	PodsChanged  Source = "pods-changed"
	DiskSurvey   Source = "disk-survey"
	Reclaimed    Source = "reclaimed"
	Reconfigured Source = "reconfigured"
)

// Report is what one pass came to. It is a copy: readers may keep it.
type Report struct {
	At           time.Time
	Source       Source
	Pass         eviction.Pass
	Node         stats.Node
	Observations eviction.Observations
	Forecast     Forecast
	State        eviction.State
	Eviction     *eviction.Config
	Decisions    []eviction.Decision // of the calls of the pass, in order
	// Failed are the victims whose kill could not begin. The evictions of the
	// decisions are the others.
	Failed []eviction.Eviction
	// Reclaims are those that began in the pass, or had ended before it.
	Reclaims []eviction.ReclaimOutcome
	// HeldBack is the pod whose turn it is, and which stays for now: see
	// eviction.Decision.
	HeldBack *eviction.Pod
	DryRun   bool
	// Lost counts reports that nobody took in time, since the start.
	Lost uint64
	// Ended is what became of a kill, in a report of its own that holds no pass.
	Ended *kill.Result
}

// Loop is the daemon's heart. One goroutine, that of Run, owns all of it but
// the queues.
type Loop struct {
	cfg       Config
	eviction  *eviction.Config // shared with readers of reports: replaced, never changed
	sensor    Sensor
	waiter    Waiter
	killer    Killer
	survey    Survey
	reclaimer Reclaimer
	census    Census
	pulse     Pulse
	log       *slog.Logger

	incoming chan []Pod
	configs  chan Config
	reports  chan Report
	asked    chan question
	ended    chan kill.Result // from the killer, which closes it
	surveyed chan struct{}    // a round of the survey is complete
	reclaims chan eviction.Signal
	lost     atomic.Uint64

	pods        []Pod
	names       []string      // beside pods, for the killer
	usages      []stats.Pod   // beside pods
	growths     []stats.Trend // beside pods, of memory
	room        eviction.Room
	decisions   []eviction.Decision // room for those of a pass
	candidates  []eviction.Candidate
	observer    eviction.Observer
	node        stats.Node
	observed    eviction.Observations            // last
	trends      [eviction.NumSignals]stats.Trend // of seconds
	sprints     [eviction.NumSignals]stats.Trend // of milliseconds
	armed       bool                             // the kernel tells when memory crosses a hard threshold
	nearing     bool                             // a memory threshold is about to be crossed
	sampled     time.Time                        // when the pods were last measured
	detail      int                              // the pod whose containers were last read
	refusals    []refusal                        // of the running pass
	state       eviction.State
	told        [eviction.NumConditions]bool
	held        bool       // a victim is held back
	idle        bool       // the last pass found nobody to end
	surveying   bool       // a pass waits for the disk survey
	askedSurvey time.Time  // when the last survey was asked for
	withheld    []withheld // outcomes that do not count yet
	reclaimed   []eviction.ReclaimOutcome
}

// reportQueue bounds the reports that wait for their reader.
const reportQueue = 64

// endedQueue bounds the ends of kills that wait for the loop; the killer keeps
// more of them.
const endedQueue = 8

// Ports of the loop. Survey, Reclaimer, Census and Pulse may be nil: then disk
// figures are taken as they come, the node has nothing to free by itself, there are
// no pods but those that were set, and nobody watches.
type Ports struct {
	Sensor    Sensor
	Waiter    Waiter
	Killer    Killer
	Survey    Survey
	Reclaimer Reclaimer
	Census    Census
	Pulse     Pulse
}

// New makes a loop over its ports.
func New(cfg Config, ports Ports, log *slog.Logger) *Loop {
	l := &Loop{
		cfg: cfg, eviction: &cfg.Eviction, sensor: ports.Sensor, waiter: ports.Waiter, killer: ports.Killer, survey: ports.Survey,
		reclaimer: ports.Reclaimer, census: ports.Census, pulse: ports.Pulse, log: log,
		incoming: make(chan []Pod, 1),
		configs:  make(chan Config, 1),
		reports:  make(chan Report, reportQueue),
		asked:    make(chan question, 8),
		ended:    make(chan kill.Result, endedQueue),
		surveyed: make(chan struct{}, 1),
		reclaims: make(chan eviction.Signal, endedQueue),
		observer: eviction.Observer{Model: cfg.MemoryModel},
	}
	for i := range l.sprints {
		l.sprints[i].Span = sprintSpan
	}
	return l
}

// SetPods replaces the pods of the node. It never blocks; of sets that the loop
// has not taken up yet, the last counts. Only one goroutine may call it.
func (l *Loop) SetPods(pods []Pod) {
	replace(l.incoming, pods)
	l.waiter.Wake()
}

// Configure replaces the configuration: thresholds that stay keep their standing.
// The housekeeping interval stays as it is. It never blocks; only one goroutine
// may call it.
func (l *Loop) Configure(cfg Config) {
	replace(l.configs, cfg)
	l.waiter.Wake()
}

// replace puts a value in the place of one that was not taken yet.
func replace[T any](queue chan T, value T) {
	select {
	case <-queue:
	default:
	}
	queue <- value
}

// Reports delivers what passes came to: every housekeeping pass, every pass
// that decided something, and the end of every kill. Run closes it. What is not
// taken in time is lost, and counted.
func (l *Loop) Reports() <-chan Report { return l.reports }

func (l *Loop) report(r Report) {
	r.Lost = l.lost.Load()
	select {
	case l.reports <- r:
	default:
		l.lost.Add(1)
	}
}

// Run senses, decides and kills until ctx ends or the killer does. It always
// returns nil: no fault of what is around it ends the protection of the node.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.reports)
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { l.hear(ctx) })
	l.pass(eviction.Housekeeping, Housekeeping)
	regular := time.Now().Add(l.cfg.HousekeepingInterval)
	poll := time.Now().Add(l.pollInterval())
	var rung time.Time // when a notice was last followed
	for {
		source := l.waiter.Wait(time.Until(earlier(regular, poll)))
		if ctx.Err() != nil {
			return nil
		}
		now, passed := time.Now(), true
		switch {
		case !now.Before(regular):
			l.pass(eviction.Housekeeping, Housekeeping)
			regular = regular.Add(now.Sub(regular).Truncate(l.cfg.HousekeepingInterval) + l.cfg.HousekeepingInterval)
		case source != "" && now.Sub(rung) >= breath:
			rung = now
			l.pass(eviction.Event, Source(source))
		case source != "": // a hail of notices is polled
			poll = earlier(poll, rung.Add(breath))
			passed = false
		case !now.Before(poll):
			l.pass(eviction.Event, Poll)
		default:
			passed = false
		}
		heard, open := l.takeUp()
		if !open {
			return nil
		}
		if passed || heard {
			l.armed = l.waiter.Aim(l.aims())
			poll = time.Now().Add(l.pollInterval())
		}
	}
}

// breath is the least time between passes that notices of the kernel cause.
const breath = time.Millisecond

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// hear wakes the loop for what others have to say.
func (l *Loop) hear(ctx context.Context) {
	var surveyed <-chan struct{}
	if l.survey != nil {
		surveyed = l.survey.Done()
	}
	var reclaimed <-chan eviction.Signal
	if l.reclaimer != nil {
		reclaimed = l.reclaimer.Reclaimed()
	}
	for {
		select {
		case <-ctx.Done():
			l.waiter.Wake()
			return
		case <-surveyed:
			select {
			case l.surveyed <- struct{}{}:
			default:
			}
		case signal := <-reclaimed:
			select {
			case l.reclaims <- signal:
			case <-ctx.Done():
			}
		case result, open := <-l.killer.Results():
			if !open {
				close(l.ended)
				l.waiter.Wake()
				return
			}
			select {
			case l.ended <- result:
			case <-ctx.Done():
			}
		}
		l.waiter.Wake()
	}
}

// takeUp takes up everything that waits for the loop. It says whether that
// caused a pass, and false where nobody can be ended any more.
func (l *Loop) takeUp() (passed, open bool) {
	for {
		select {
		case cfg := <-l.configs:
			l.configure(cfg)
			l.pass(eviction.Housekeeping, Reconfigured)
		case pods := <-l.incoming:
			l.adopt(pods)
			l.pass(eviction.Event, PodsChanged)
		case <-l.surveyed:
			if !l.surveying {
				continue
			}
			l.pass(eviction.Housekeeping, DiskSurvey)
		case signal := <-l.reclaims:
			l.reclaimed = append(l.reclaimed, eviction.ReclaimOutcome{For: signal, Ended: true})
			l.pass(eviction.Housekeeping, Reclaimed)
		case result, open := <-l.ended:
			if !open {
				return passed, false
			}
			l.settle(result)
		case q := <-l.asked:
			q.answer <- l.snapshot(q.pods)
			continue
		default:
			return passed, true
		}
		passed = true
	}
}

// adopt takes up a new set of pods.
func (l *Loop) adopt(pods []Pod) {
	growths := make([]stats.Trend, len(pods))
	for i := range growths {
		growths[i].Span = growthSpan
		if before := slices.IndexFunc(l.pods, func(p Pod) bool { return p.UID == pods[i].UID }); before >= 0 {
			growths[i] = l.growths[before]
		}
	}
	l.pods, l.growths = pods, growths
	l.names = make([]string, len(pods))
	l.usages = make([]stats.Pod, len(pods))
	l.candidates = make([]eviction.Candidate, 0, len(pods))
	for i := range pods {
		l.names[i] = pods[i].String()
		l.usages[i].Containers = make([]stats.Container, len(pods[i].Containers))
		l.usages[i].Volumes = make([]stats.Volume, len(pods[i].Volumes))
	}
	l.refill()
	l.idle = false
}

// refill makes the memory that the next pass decides with.
func (l *Loop) refill() {
	l.room.Refill(len(l.pods))
	if l.decisions == nil {
		l.decisions = make([]eviction.Decision, 0, 4)
	}
}

// configure takes up a new configuration.
func (l *Loop) configure(cfg Config) {
	l.state = l.state.Under(l.eviction, &cfg.Eviction)
	l.cfg, l.eviction, l.observer.Model = cfg, &cfg.Eviction, cfg.MemoryModel
}

// settle takes up the end of a kill; the next pass follows at once. A victim
// that outlives its grace period stays in flight, where it is overdue.
func (l *Loop) settle(r kill.Result) {
	l.report(Report{At: time.Now(), Ended: &r})
	if !r.Gone.IsZero() || errors.Is(r.Err, kill.ErrNotSignalled) {
		l.withhold(r)
	}
	l.pass(eviction.Housekeeping, VictimGone)
}
