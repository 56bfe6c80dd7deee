package control

import (
	"context"
	"slices"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// Snapshot is the state of the node, measured for the caller or shortly before. It is a
// copy: the caller may keep it.
type Snapshot struct {
	At           time.Time
	Node         stats.Node
	Observations eviction.Observations
	Forecast
	State      eviction.State
	Candidates []eviction.Candidate
	Eviction   *eviction.Config
}

// query asks for a snapshot.
type query struct {
	look   func() Snapshot // the loop's
	answer chan<- Snapshot
}

// Snapshot asks the loop for the node and all its pods, see readInterval and
// sampleInterval. It fails where ctx ends first, as it does when the loop has ended.
func (l *Loop) Snapshot(ctx context.Context) (Snapshot, error) { return l.ask(ctx, l.snapshot) }

// Glance is a Snapshot without Candidates: the pods are not looked at.
func (l *Loop) Glance(ctx context.Context) (Snapshot, error) { return l.ask(ctx, l.glance) }

// Recent is a Snapshot of the last pass, with the pods as housekeeping passes have
// measured them: it costs next to nothing.
func (l *Loop) Recent(ctx context.Context) (Snapshot, error) { return l.ask(ctx, l.recent) }

func (l *Loop) ask(ctx context.Context, look func() Snapshot) (Snapshot, error) {
	answer := make(chan Snapshot, 1) // the loop never waits for its reader
	select {
	case l.queries <- query{look, answer}:
		l.waiter.Wake()
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	select {
	case s := <-answer:
		return s, nil
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
}

// Bounds of what readers cost the loop: the node is read for them once per readInterval, the
// pods once per sampleInterval and not while a threshold is near or a victim ends. In
// between they see the figures of the last passes.
const (
	readInterval   = 10 * time.Millisecond
	sampleInterval = time.Second
)

func (l *Loop) snapshot() Snapshot {
	s := l.glance()
	if !l.busy() && s.At.Sub(l.sampledForReaders) >= sampleInterval {
		l.sampledForReaders = s.At
		s.Candidates = kept(l.sample(true))
		return s
	}
	s.Candidates = kept(l.measuredOnce())
	return s
}

func (l *Loop) glance() Snapshot {
	if time.Since(l.node.Time) >= readInterval {
		l.sense(true)
	}
	return l.snapshotNow()
}

// busy says whether the loop's time belongs to the evictions.
func (l *Loop) busy() bool {
	return l.nearing || l.diskNear || len(l.driver.State.InFlight) > 0
}

func (l *Loop) recent() Snapshot {
	s := l.snapshotNow()
	s.Candidates = kept(l.measuredOnce())
	return s
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

func (l *Loop) snapshotNow() Snapshot {
	return Snapshot{At: time.Now(), Node: l.node, Observations: l.observed, Forecast: l.forecast(), State: l.driver.State, Eviction: &l.cfg.Eviction}
}

// kept copies candidates with their usage: the loop measures again into its own.
func kept(candidates []eviction.Candidate) []eviction.Candidate {
	candidates = slices.Clone(candidates)
	for i := range candidates {
		if c := &candidates[i]; c.Usage != nil {
			usage := *c.Usage
			usage.Containers, usage.Volumes = slices.Clone(usage.Containers), slices.Clone(usage.Volumes)
			c.Usage = &usage
		}
	}
	return candidates
}
