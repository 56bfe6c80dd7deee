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
	"github.com/evictd/evictd/internal/tick"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// Loop senses and acts. The goroutine of Run owns all of it but the queues and the snapshots.
type Loop struct {
	cfg    *Config // shared with readers of reports: replaced, never changed
	ports  Ports
	budget budget
	log    *slog.Logger

	queues
	snapshots snapshots
	podMeter
	memoryWatch
	facts

	driver     eviction.Driver
	buffers    eviction.Buffers
	decisions  []eviction.Decision // buffer for those of a pass
	observer   eviction.Observer
	node       stats.Node
	observed   eviction.Observations // last
	regular    time.Time             // when the next regular housekeeping pass is due
	refusals   []refusal             // of the running pass
	reported   standing
	passes     map[Source]int  // since the last report
	started    *eviction.State // not reported yet
	idle       bool            // thresholds act and no pod can be evicted for them
	awaitsScan bool            // a decision waits for a scan of the pods' disks
}

// queues are what other goroutines give the loop, and what it gives them.
type queues struct {
	incoming     chan podSet
	configs      chan Config
	restarts     chan []eviction.Restarted
	reports      chan Report
	ended        chan kill.Result // from the killer, which closes it
	scanned      chan struct{}    // a scan of the pods' disks is complete
	reclaims     chan eviction.Signal
	stepOutcomes chan eviction.StepOutcome
	lost         atomic.Uint64
}

// facts are what the next pass is given.
type facts struct {
	outcomes  []eviction.Outcome
	reclaimed []eviction.ReclaimOutcome
	stepped   []eviction.StepOutcome
	restarted []eviction.Restarted
	arrived   []types.UID
}

// podMeter measures the pods.
type podMeter struct {
	pods       []Pod
	received   uint64    // the last set of pods, see podSet
	figures    []figures // beside pods
	candidates []eviction.Candidate
	reading    stats.Pod // buffer for a victim
	unreaped   []unreaped

	sampled           time.Time // when the pods were last measured
	stalls            time.Time // when the stalls of pods were last read
	sampledForReaders time.Time // when that was begun for readers
	measuredUpTo      int       // while pods are being measured for readers, the next of them
	detail            int       // the pod whose containers were last read
}

// memoryWatch says how soon the loop looks again: how near the thresholds are, and how fast their signals fall.
type memoryWatch struct {
	spare      [2]int64                         // of the last read
	trends     [eviction.NumSignals]stats.Trend // of seconds
	rates      [eviction.NumSignals]stats.Trend // of milliseconds
	paces      [eviction.NumSignals]stats.Trend // of half a second, for steps before evictions
	watched    time.Time                        // when those were last decided about
	armed      collect.Armed                    // the kernel notifies when memory reaches its mark
	marked     time.Time                        // when the kernel last notified of a usage threshold
	nearing    bool                             // a memory threshold is about to be crossed
	throttling bool                             // a memory threshold is reached within eviction.Config.ThrottlePeriod
	diskNear   bool                             // a hard threshold of a disk may be crossed before the next housekeeping pass
}

// figures are what was measured of a pod.
type figures struct {
	name   string // for the killer
	usage  stats.Pod
	growth stats.Trend // of memory
	// readBack is of bytes, and stalled of nanoseconds in which tasks waited for memory.
	readBack, stalled stats.Trend
	// containers are the growths of the containers of a pod that steps before evictions are configured for.
	containers []stats.Trend
	gone       time.Time // when its last kill ended, or it was known to have no process
	// deleted pods are kept while they are being killed.
	deleted bool
}

// unreaped is an ended victim of process ids, and what reads its tasks.
type unreaped struct {
	uid   types.UID
	meter Meter
}

// standing is reported when it changes: the conditions, and whether a victim is held
// back.
type standing struct {
	conditions [eviction.NumConditions]bool
	held       bool
}

// lapses is how many housekeeping intervals between two passes count toward graces: a
// machine under pressure is late.
const lapses = 2

// New makes a loop over its ports.
func New(cfg Config, ports Ports, log *slog.Logger) *Loop {
	cfg.Eviction.Lapse = lapses * cfg.HousekeepingInterval
	l := &Loop{
		cfg: &cfg, ports: ports, budget: budget{cpuTime: ports.CPUTime}, log: log,
		queues: queues{
			incoming:     make(chan podSet, 1),
			configs:      make(chan Config, 1),
			restarts:     make(chan []eviction.Restarted, 1),
			reports:      make(chan Report, reportQueue),
			ended:        make(chan kill.Result, endedQueue),
			scanned:      make(chan struct{}, 1),
			reclaims:     make(chan eviction.Signal, endedQueue),
			stepOutcomes: make(chan eviction.StepOutcome, endedQueue),
		},
		observer: eviction.Observer{Model: cfg.MemoryModel, Thrash: stats.Thrash{Window: cfg.Eviction.MemoryStallWindow}},
	}
	l.driver.Config, l.driver.Node = &l.cfg.Eviction, node{l}
	l.refill()
	for i := range l.rates {
		l.rates[i].Span, l.paces[i].Span = rateSpan, growthSpan
	}
	return l
}

// Run runs passes until ctx ends or the killer does. It always returns nil: no fault
// of a port ends the protection of the node.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.reports)
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { l.forward(ctx) })
	l.start()
	l.pass(eviction.Housekeeping, Housekeeping)
	l.regular = time.Now().Add(tick.Until(l.cfg.HousekeepingInterval))
	poll := l.nextPoll()
	var notified, rested time.Time // when a notification last caused a pass; until then nothing but what is due does
	for {
		l.snapshots.nearing.Store(l.nearing)
		due := l.due()
		source := l.ports.Waiter.Wait(time.Until(earlier(due, poll)))
		if ctx.Err() != nil {
			return nil
		}
		now, passed := time.Now(), true
		switch {
		case !now.Before(l.regular):
			l.pass(eviction.Housekeeping, Housekeeping)
			l.regular = l.regular.Add(now.Sub(l.regular).Truncate(l.cfg.HousekeepingInterval) + l.cfg.HousekeepingInterval)
		case !now.Before(due):
			l.pass(eviction.Housekeeping, GraceEnded)
		case source != "" && !now.Before(later(rested, notified.Add(gapOf(source)))):
			notified = now
			if source == collect.MemcgThreshold {
				l.marked = now
			}
			l.pass(eviction.Event, Source(source))
		case source != "": // too many notifications are polled
			poll = earlier(poll, later(rested, notified.Add(gapOf(source))))
			passed = false
		case !now.Before(poll):
			l.pass(eviction.Event, Poll)
		default:
			passed = false
		}
		if passed {
			l.watch()
		}
		received, open := l.receive()
		if !open {
			return nil
		}
		if passed || received {
			l.armed = l.ports.Waiter.SetLevels(l.aims())
			rested = l.budget.charge(time.Now())
			poll = later(rested, l.nextPoll())
		}
	}
}

// due is when the next housekeeping pass is due: at the latest when a running grace period ends.
func (l *Loop) due() time.Time {
	if ends := l.driver.State.GraceEnds(&l.cfg.Eviction); !ends.IsZero() {
		return earlier(l.regular, ends)
	}
	if len(l.driver.State.Refused) > 0 { // they are evicted once they run
		return earlier(l.regular, l.driver.State.Looked.Add(pollCeiling))
	}
	return l.regular
}

const (
	// notificationGap is the least time between passes that notifications cause.
	notificationGap = time.Millisecond
	// eventsGap is that of memory.events.local: pods at the limit of their cgroup reach it without
	// end, while the kernel frees page cache, and the kernel notifies every 10 ms.
	eventsGap = 50 * time.Millisecond
)

func gapOf(source string) time.Duration {
	if source == collect.MemoryEvents {
		return eventsGap
	}
	return notificationGap
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// replacePods replaces the pods. Those that stay keep their figures, and victims stay until
// they have ended, even if their pods were deleted, unless another pod has their name: a
// recording has one pod of each name.
func (l *Loop) replacePods(pods []Pod) {
	listed := len(pods)
	for i := range l.pods {
		stays := func(p Pod) bool {
			return p.UID == l.pods[i].UID || p.Namespace == l.pods[i].Namespace && p.Name == l.pods[i].Name
		}
		if l.ending(l.pods[i].UID) && !slices.ContainsFunc(pods, stays) {
			pods = append(slices.Clip(pods), l.pods[i])
		}
	}
	all := make([]figures, len(pods))
	for i := range pods {
		f := &all[i]
		f.growth.Span = growthSpan
		before := l.indexOf(pods[i].UID)
		if before >= 0 {
			*f = l.figures[before]
		}
		if pods[i].Arrived && (before < 0 || !l.pods[before].Arrived) {
			l.arrived = append(l.arrived, pods[i].UID)
		}
		f.name, f.deleted = pods[i].String(), i >= listed
		containers, volumes := len(pods[i].Containers), len(pods[i].Volumes)
		f.usage = stats.Pod{Containers: make([]stats.Container, containers), Volumes: make([]stats.Volume, volumes)}
		l.reading.Containers = slices.Grow(l.reading.Containers[:0], containers)
		l.reading.Volumes = slices.Grow(l.reading.Volumes[:0], volumes)
	}
	l.pods, l.figures, l.candidates = pods, all, make([]eviction.Candidate, 0, len(pods))
	l.refill()
	l.idle = false
}

// dropDeleted drops the pods that were kept until their end.
func (l *Loop) dropDeleted() {
	for i := len(l.pods) - 1; i >= 0 && l.figures[i].deleted; i-- { // they are the last
		if !l.ending(l.pods[i].UID) {
			l.pods, l.figures = slices.Delete(l.pods, i, i+1), slices.Delete(l.figures, i, i+1)
		}
	}
}

// ending says whether a pod is being killed.
func (l *Loop) ending(uid types.UID) bool {
	f := l.driver.State.Victim(uid)
	return f != nil && !f.Unattended && f.Ended.IsZero()
}

// indexOf is the place of a pod; negative without one.
func (l *Loop) indexOf(uid types.UID) int {
	return slices.IndexFunc(l.pods, func(p Pod) bool { return p.UID == uid })
}

// refill allocates what the next pass needs.
func (l *Loop) refill() {
	l.buffers.Refill(len(l.pods))
	if l.decisions == nil {
		l.decisions = make([]eviction.Decision, 0, 4)
	}
	if l.passes == nil {
		l.passes = make(map[Source]int, numSources)
	}
}

// configure replaces the configuration.
func (l *Loop) configure(cfg Config) {
	cfg.HousekeepingInterval, cfg.Eviction.Lapse = l.cfg.HousekeepingInterval, l.cfg.Eviction.Lapse
	l.driver.State = l.driver.State.Under(&l.cfg.Eviction, &cfg.Eviction)
	l.cfg, l.driver.Config, l.observer.Model = &cfg, &cfg.Eviction, cfg.MemoryModel
	if window := cfg.Eviction.MemoryStallWindow; window != l.observer.Thrash.Window {
		l.observer.Thrash = stats.Thrash{Window: window}
	}
	l.start()
}

// Resume continues with the state of a loop before this one; call it before Run.
func (l *Loop) Resume(st eviction.State) {
	if l.cfg.Eviction.DryRun {
		st.InFlight = nil
	}
	l.driver.State = st
}

// start has the next report say with which state it starts.
func (l *Loop) start() {
	state := l.driver.State
	l.started = &state
}

// killEnded runs a pass on the end of a kill. A victim that outlives its grace stays
// in flight.
func (l *Loop) killEnded(r kill.Result) {
	l.report(Report{At: time.Now(), Ended: &r})
	i := l.indexOf(r.UID)
	if i >= 0 && r.Container == "" {
		l.figures[i].gone = r.Gone
	}
	f := l.driver.State.Victim(r.UID)
	switch {
	case r.Container != "" && (f == nil || f.Container != r.Container): // its pod is being evicted, or was
	case !r.Gone.IsZero():
		l.outcomes = append(l.outcomes, eviction.Outcome{UID: r.UID, Ended: r.Gone, Signalled: !r.Signalled.IsZero()})
		if i >= 0 && l.pods[i].Meter != nil && r.Container == "" {
			l.unreaped = append(l.unreaped, unreaped{r.UID, l.pods[i].Meter})
		}
	case errors.Is(r.Err, kill.ErrNotSignalled):
		l.outcomes = append(l.outcomes, eviction.Outcome{UID: r.UID, Failed: true})
	}
	l.pass(eviction.Housekeeping, VictimGone)
}
