package control

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// Snapshot is the state of the node at one time. All readers share what it refers to: they may
// keep it, and change nothing of it.
type Snapshot struct {
	At           time.Time
	Node         stats.Node
	Observations eviction.Observations
	Forecast
	State      eviction.State
	Candidates []eviction.Candidate
	Eviction   *eviction.Config

	pods     uint64    // the set of pods that the loop had received, see Loop.SetPods
	listed   time.Time // when Candidates were listed
	measured time.Time // when they were last measured for readers, as far as there was time
}

// snapshots is what readers and the loop share. Neither waits for the other's processor time: the
// loop publishes a snapshot for all readers that wait, however many they are.
type snapshots struct {
	last  atomic.Pointer[Snapshot] // nil before the first pass
	asked atomic.Pointer[request]  // nil while no reader waits
	// nearing: a memory threshold is about to be crossed, and readers get the last snapshot that
	// has the pods of the last SetPods.
	nearing atomic.Bool
	sets    atomic.Uint64 // of pods, as SetPods counts them
}

// request is what readers wait for together.
type request struct {
	list, measure, woken atomic.Bool
	answered             chan struct{}
}

// Bounds of what readers cost the loop. A snapshot younger than snapshotInterval is every reader's.
// The pods are measured for readers once per sampleInterval, sampledAtOnce of them between two
// looks at what is due, and not while a threshold is near or a victim ends.
const (
	snapshotInterval = 100 * time.Millisecond
	readInterval     = 10 * time.Millisecond
	sampleInterval   = time.Second
	sampledAtOnce    = 16
)

// Snapshot returns the node and all its pods, see the bounds above. It fails where ctx ends first,
// as it does when the loop has ended.
func (l *Loop) Snapshot(ctx context.Context) (Snapshot, error) {
	since := time.Now().Add(-snapshotInterval)
	return l.await(ctx, func(r *request) { r.measure.Store(true) }, func(s *Snapshot) bool { return s.measured.After(since) })
}

// Glance is a Snapshot whose Candidates are those of an earlier one, and its node no older than
// readInterval.
func (l *Loop) Glance(ctx context.Context) (Snapshot, error) {
	since := time.Now().Add(-readInterval)
	return l.await(ctx, func(*request) {}, func(s *Snapshot) bool { return s.At.After(since) })
}

// Next is a Glance at the node when the loop looks at it next of itself, which where every
// threshold is far may take restCeiling: it costs the loop no pass.
func (l *Loop) Next(ctx context.Context) (Snapshot, error) {
	select {
	case <-l.request(func(*request) {}).answered:
		return *l.snapshots.last.Load(), nil
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
}

// Recent is a Snapshot with the pods of the last SetPods, as housekeeping passes have measured them.
func (l *Loop) Recent(ctx context.Context) (Snapshot, error) {
	since := time.Now().Add(-snapshotInterval)
	return l.await(ctx, func(r *request) { r.list.Store(true) }, func(s *Snapshot) bool { return s.listed.After(since) && l.HasReceived(s) })
}

// HasReceived says whether the loop had received the pods of the last SetPods.
func (l *Loop) HasReceived(s *Snapshot) bool { return s.pods == l.snapshots.sets.Load() }

// await returns the last snapshot if it is recent enough, or has all pods while a threshold nears, and
// otherwise waits for the next.
func (l *Loop) await(ctx context.Context, need func(*request), recent func(*Snapshot) bool) (Snapshot, error) {
	for {
		if s := l.snapshots.last.Load(); s != nil && (l.snapshots.nearing.Load() && l.HasReceived(s) || recent(s)) {
			return *s, nil
		}
		r := l.request(need)
		if r.woken.CompareAndSwap(false, true) {
			l.ports.Waiter.Wake()
		}
		select {
		case <-r.answered:
		case <-ctx.Done():
			return Snapshot{}, ctx.Err()
		}
	}
}

// request joins the readers that wait for the loop.
func (l *Loop) request(need func(*request)) *request {
	for {
		if r := l.snapshots.asked.Load(); r != nil {
			need(r)
			return r
		}
		r := &request{answered: make(chan struct{})}
		need(r)
		if l.snapshots.asked.CompareAndSwap(nil, r) {
			return r
		}
	}
}

// answer publishes what readers wait for. While a memory threshold nears, it publishes the pods of
// a SetPods, so that the processes of new ones are opened before a decision, and nothing else.
func (l *Loop) answer() {
	r := l.snapshots.asked.Load()
	if r == nil {
		return
	}
	measure := r.measure.Load()
	if measure && !l.measureForReaders() {
		l.ports.Waiter.Wake() // what is due meanwhile comes first
		return
	}
	last := l.snapshots.last.Load()
	known := last != nil && last.pods == l.received
	if !l.nearing || !known {
		if !l.nearing && time.Since(l.node.Time) >= readInterval {
			l.sense(true)
		}
		s := l.snapshotNow()
		if measure || r.list.Load() || !known {
			s.Candidates, s.listed = kept(l.measuredOnce()), s.At
		}
		if measure {
			s.measured = s.At
		}
		l.snapshots.last.Store(s)
	}
	l.snapshots.asked.Store(nil) // a reader that has joined since the snapshot was made may ask again
	close(r.answered)
}

// measureForReaders measures the next pods. It says whether that is all for now.
func (l *Loop) measureForReaders() (done bool) {
	if l.measuredUpTo == 0 {
		if time.Since(l.sampledForReaders) < sampleInterval || l.busy() {
			return true
		}
		l.sampledForReaders = time.Now()
	}
	for n := 0; l.measuredUpTo < len(l.pods) && !l.busy(); n++ {
		if n == sampledAtOnce {
			return false
		}
		l.measure(l.measuredUpTo, Meter.Read)
		l.measuredUpTo++
	}
	l.measuredUpTo = 0
	return true
}

// publishReport makes the snapshot of a pass that is reported.
func (l *Loop) publishReport(r *Report) {
	s := l.snapshotNow()
	if r.Sampled {
		s.Candidates, s.listed = r.Candidates, s.At
	}
	l.snapshots.last.Store(s)
}

// snapshotNow is the state after the last pass, with the pods of the last snapshot.
func (l *Loop) snapshotNow() *Snapshot {
	s := &Snapshot{At: time.Now(), Node: l.node, Observations: l.observed, Forecast: l.forecast(), State: l.driver.State, Eviction: &l.cfg.Eviction, pods: l.received}
	if before := l.snapshots.last.Load(); before != nil {
		s.Candidates, s.listed, s.measured = before.Candidates, before.listed, before.measured
	}
	return s
}

// busy says whether the loop's time belongs to the evictions.
func (l *Loop) busy() bool {
	return l.nearing || l.diskNear || len(l.driver.State.InFlight) > 0
}

// measuredOnce are the pods with their last figures. Those that were set after the last
// pass are measured.
func (l *Loop) measuredOnce() []eviction.Candidate {
	for i := range l.figures {
		if l.figures[i].usage.Time.IsZero() {
			l.measure(i, justMemory)
		}
	}
	return l.listCandidates()
}

// kept copies candidates with their usage: the loop measures again into its own.
func kept(candidates []eviction.Candidate) []eviction.Candidate {
	var pods, containers, volumes int
	for i := range candidates {
		if u := candidates[i].Usage; u != nil {
			pods, containers, volumes = pods+1, containers+len(u.Containers), volumes+len(u.Volumes)
		}
	}
	candidates = slices.Clone(candidates)
	usages, ofContainers, ofVolumes := make([]stats.Pod, 0, pods), make([]stats.Container, 0, containers), make([]stats.Volume, 0, volumes)
	for i := range candidates {
		c := &candidates[i]
		if c.Usage == nil {
			continue
		}
		usages = append(usages, *c.Usage)
		usage := &usages[len(usages)-1]
		usage.Containers, ofContainers = appended(ofContainers, c.Usage.Containers)
		usage.Volumes, ofVolumes = appended(ofVolumes, c.Usage.Volumes)
		c.Usage = usage
	}
	return candidates
}

// appended appends values to all, and returns them there.
func appended[T any](all, values []T) (there, longer []T) {
	all = append(all, values...)
	return all[len(all)-len(values) : len(all) : len(all)], all
}
