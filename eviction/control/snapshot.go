package control

import (
	"context"
	"slices"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// Snapshot is how the node stands, measured for the one who asked. It is a
// copy: its owner may keep it.
type Snapshot struct {
	At           time.Time
	Node         stats.Node
	Observations eviction.Observations
	Forecast
	State      eviction.State
	Candidates []eviction.Candidate
	Eviction   *eviction.Config
}

// question is somebody's who wants a snapshot.
type question struct {
	pods   bool
	answer chan<- Snapshot
}

// Snapshot asks the loop to look at the node and all its pods now. It fails
// where ctx ends first, as it does when the loop has ended.
func (l *Loop) Snapshot(ctx context.Context) (Snapshot, error) { return l.ask(ctx, true) }

// Glance is a Snapshot without Candidates: the pods are not looked at.
func (l *Loop) Glance(ctx context.Context) (Snapshot, error) { return l.ask(ctx, false) }

func (l *Loop) ask(ctx context.Context, pods bool) (Snapshot, error) {
	answer := make(chan Snapshot, 1) // the loop never waits for its reader
	select {
	case l.asked <- question{pods, answer}:
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

func (l *Loop) snapshot(pods bool) Snapshot {
	observations := l.sense()
	s := Snapshot{At: time.Now(), Node: l.node, Observations: observations, State: l.state, Eviction: l.eviction}
	s.Forecast = l.forecast()
	if !pods {
		return s
	}
	s.Candidates = slices.Clone(l.sample(true))
	for i := range s.Candidates {
		keep(&s.Candidates[i])
	}
	return s
}
