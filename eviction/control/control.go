// Package control is the loop that senses, decides and kills. It waits for
// nobody: pods come in and reports go out over bounded queues, and nothing on
// their other sides can hold it up. It never decides by itself: eviction does.
package control

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
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

// Reclaimer frees what the node can free without ending a pod. It is called on
// the loop's goroutine and must not wait.
type Reclaimer interface {
	Reclaim([]eviction.ReclaimStep)
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

// Source says what woke the loop for a pass.
type Source string

// The sources.
const (
	Housekeeping Source = "housekeeping"
	Poll         Source = "poll"
	VictimGone   Source = "victim-gone"
	PodsChanged  Source = "pods-changed"
	DiskSurvey   Source = "disk-survey"
	Reconfigured Source = "reconfigured"
)

// Report is what one pass came to. It is a copy: readers may keep it.
type Report struct {
	At           time.Time
	Source       Source
	Pass         eviction.Pass
	Node         stats.Node
	Observations eviction.Observations
	State        eviction.State
	Eviction     *eviction.Config
	Decisions    []eviction.Decision // of the calls of the pass, in order
	// Failed are the victims whose kill could not begin. The evictions of the
	// decisions are the others.
	Failed []eviction.Eviction
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
	killer    Killer
	survey    Survey
	reclaimer Reclaimer
	census    Census
	log       *slog.Logger

	incoming chan []Pod
	configs  chan Config
	reports  chan Report
	asked    chan question
	lost     atomic.Uint64

	pods        []Pod
	usages      []stats.Pod // beside pods
	candidates  []eviction.Candidate
	observer    eviction.Observer
	node        stats.Node
	trends      [eviction.NumSignals]stats.Trend // of seconds
	sprints     [eviction.NumSignals]stats.Trend // of milliseconds
	state       eviction.State
	told        [eviction.NumConditions]bool
	held        bool       // a victim is held back
	idle        bool       // the last pass found nobody to end
	surveying   bool       // a pass waits for the disk survey
	askedSurvey time.Time  // when the last survey was asked for
	withheld    []withheld // outcomes that do not count yet
}

// reportQueue bounds the reports that wait for their reader.
const reportQueue = 64

// Ports of the loop. Survey, Reclaimer and Census may be nil: then disk figures
// are taken as they come, the node has nothing to free by itself, and there are
// no pods but those that were set.
type Ports struct {
	Sensor    Sensor
	Killer    Killer
	Survey    Survey
	Reclaimer Reclaimer
	Census    Census
}

// New makes a loop over its ports.
func New(cfg Config, ports Ports, log *slog.Logger) *Loop {
	l := &Loop{
		cfg: cfg, eviction: &cfg.Eviction, sensor: ports.Sensor, killer: ports.Killer, survey: ports.Survey, reclaimer: ports.Reclaimer, census: ports.Census, log: log,
		incoming: make(chan []Pod, 1),
		configs:  make(chan Config, 1),
		reports:  make(chan Report, reportQueue),
		asked:    make(chan question, 8),
		observer: eviction.Observer{Model: cfg.MemoryModel},
	}
	for i := range l.sprints {
		l.sprints[i].Span = sprintSpan
	}
	return l
}

// SetPods replaces the pods of the node. It never blocks; of sets that the loop
// has not taken up yet, the last counts. Only one goroutine may call it.
func (l *Loop) SetPods(pods []Pod) { replace(l.incoming, pods) }

// Configure replaces the configuration: thresholds that stay keep their standing.
// The housekeeping interval stays as it is. It never blocks; only one goroutine
// may call it.
func (l *Loop) Configure(cfg Config) { replace(l.configs, cfg) }

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

// Run senses, decides and kills until ctx ends. It always returns nil: no fault
// of what is around it ends the protection of the node.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.reports)
	housekeeping := time.NewTicker(l.cfg.HousekeepingInterval)
	defer housekeeping.Stop()
	l.pass(eviction.Housekeeping, Housekeeping)
	poll := time.NewTimer(l.pollInterval())
	defer poll.Stop()
	var surveyed <-chan struct{}
	if l.survey != nil {
		surveyed = l.survey.Done()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-housekeeping.C:
			l.pass(eviction.Housekeeping, Housekeeping)
		case <-poll.C:
			l.pass(eviction.Event, Poll)
		case cfg := <-l.configs:
			l.configure(cfg)
			l.pass(eviction.Housekeeping, Reconfigured)
		case pods := <-l.incoming:
			l.adopt(pods)
			l.pass(eviction.Event, PodsChanged)
		case <-surveyed:
			if !l.surveying {
				continue
			}
			l.pass(eviction.Housekeeping, DiskSurvey)
		case result, open := <-l.killer.Results():
			if !open {
				return nil
			}
			l.settle(result)
		case q := <-l.asked:
			q.answer <- l.snapshot(q.pods)
			continue
		}
		poll.Reset(l.pollInterval())
	}
}

// adopt takes up a new set of pods.
func (l *Loop) adopt(pods []Pod) {
	l.pods = pods
	l.usages = make([]stats.Pod, len(pods))
	l.candidates = make([]eviction.Candidate, 0, len(pods))
	for i := range pods {
		l.usages[i].Containers = make([]stats.Container, len(pods[i].Containers))
		l.usages[i].Volumes = make([]stats.Volume, len(pods[i].Volumes))
	}
	l.idle = false
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
