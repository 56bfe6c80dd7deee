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
)

// Loop is the daemon's heart. One goroutine, that of Run, owns all of it but
// the queues.
type Loop struct {
	cfg       *Config // shared with readers of reports: replaced, never changed
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
	seen        []seen // beside pods
	room        eviction.Room
	decisions   []eviction.Decision // room for those of a pass
	candidates  []eviction.Candidate
	observer    eviction.Observer
	node        stats.Node
	observed    eviction.Observations            // last
	trends      [eviction.NumSignals]stats.Trend // of seconds
	sprints     [eviction.NumSignals]stats.Trend // of milliseconds
	armed       bool                             // the kernel tells when memory comes to where it was aimed at
	nearing     bool                             // a memory threshold is about to be crossed
	diskNear    bool                             // a hard threshold of a disk may be crossed before the next housekeeping pass
	regular     time.Time                        // when the next housekeeping pass is due
	sampled     time.Time                        // when the pods were last measured
	detail      int                              // the pod whose containers were last read
	refusals    []refusal                        // of the running pass
	state       eviction.State
	told        announced
	idle        bool       // the last pass found nobody to end
	surveying   bool       // a pass waits for the disk survey
	askedSurvey time.Time  // when the last survey was asked for
	withheld    []withheld // outcomes that do not count yet
	resumed     []Resumed  // since the last report
	reclaimed   []eviction.ReclaimOutcome
}

// seen is what the loop has seen of a pod.
type seen struct {
	name   string // for the killer
	usage  stats.Pod
	growth stats.Trend  // of memory
	end    kill.Result  // of its last kill
	held   int64        // on the disk that it was last ended for, in its signal's unit
	paid   stats.Amount // how many tasks the node is to have once those of a victim of process ids are reaped
}

// announced is what is reported once it changes: the conditions, and whether a victim
// is held back.
type announced struct {
	reported [eviction.NumConditions]bool
	held     bool
}

// lapses is how many housekeeping intervals may pass without a look before graces
// stand still: a machine under pressure is late.
const lapses = 2

// reportQueue bounds the reports that wait for their reader.
const reportQueue = 64

// endedQueue bounds the ends of kills that wait for the loop; the killer keeps
// more of them.
const endedQueue = 8

// New makes a loop over its ports.
func New(cfg Config, ports Ports, log *slog.Logger) *Loop {
	cfg.Eviction.Lapse = lapses * cfg.HousekeepingInterval
	l := &Loop{
		cfg: &cfg, sensor: ports.Sensor, waiter: ports.Waiter, killer: ports.Killer, survey: ports.Survey,
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
	l.regular = time.Now().Add(l.cfg.HousekeepingInterval)
	poll := l.nextPoll()
	var rung time.Time // when a notice was last followed
	for {
		source := l.waiter.Wait(time.Until(earlier(l.regular, poll)))
		if ctx.Err() != nil {
			return nil
		}
		now, passed := time.Now(), true
		switch {
		case !now.Before(l.regular):
			l.pass(eviction.Housekeeping, Housekeeping)
			l.regular = l.regular.Add(now.Sub(l.regular).Truncate(l.cfg.HousekeepingInterval) + l.cfg.HousekeepingInterval)
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
			l.armed = l.waiter.SetLevels(l.aims())
			poll = l.nextPoll()
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
		default:
			select {
			case q := <-l.asked: // who asks sees what was told before
				q.answer <- q.look()
				continue
			default:
				return passed, true
			}
		}
		passed = true
	}
}

// adopt takes up a new set of pods.
func (l *Loop) adopt(pods []Pod) {
	all := make([]seen, len(pods))
	for i := range pods {
		s := &all[i]
		s.growth.Span = growthSpan
		if before := l.indexOf(pods[i].UID); before >= 0 {
			*s = l.seen[before]
		}
		s.name = pods[i].String()
		s.usage = stats.Pod{Containers: make([]stats.Container, len(pods[i].Containers)), Volumes: make([]stats.Volume, len(pods[i].Volumes))}
	}
	l.pods, l.seen, l.candidates = pods, all, make([]eviction.Candidate, 0, len(pods))
	l.pursue(time.Now())
	l.refill()
	l.idle = false
}

// indexOf is the place of a pod; negative without one.
func (l *Loop) indexOf(uid types.UID) int {
	return slices.IndexFunc(l.pods, func(p Pod) bool { return p.UID == uid })
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
	cfg.HousekeepingInterval, cfg.Eviction.Lapse = l.cfg.HousekeepingInterval, l.cfg.Eviction.Lapse
	l.state = l.state.Under(&l.cfg.Eviction, &cfg.Eviction)
	l.cfg, l.observer.Model = &cfg, cfg.MemoryModel
}

// settle takes up the end of a kill; the next pass follows at once. A victim
// that outlives its grace period stays in flight, where it is overdue.
func (l *Loop) settle(r kill.Result) {
	l.report(Report{At: time.Now(), Ended: &r})
	if !r.Gone.IsZero() || errors.Is(r.Err, kill.ErrNotSignalled) {
		l.withhold(r)
	}
	if i := l.indexOf(r.UID); i >= 0 {
		l.seen[i].end = r
	}
	l.pass(eviction.Housekeeping, VictimGone)
}
