package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/wire"
)

const (
	// shortestStop is the shortest grace that the runtime is asked to give: it
	// counts whole seconds.
	shortestStop = time.Second
	// lastSecond of a grace is kept for the sidecars.
	lastSecond = time.Second
	// tidy is how long a sandbox may take to be stopped once its pod has ended.
	tidy = time.Minute
)

// Running is what the runtime runs of a pod, by ids.
type Running struct {
	// Containers to stop together and, when all of those have ended, Sidecars to
	// stop one after the other.
	Containers, Sidecars []string
	Sandboxes            []string
}

// Stopper is a Killer that lets the container runtime tell soft victims to end,
// which knows the signal that each image asks for and stops what it stops for
// good. Their grace ends when it ends, whatever the runtime has done by then. Hard
// victims are killed at once, and the runtime hears of them when they are gone.
type Stopper struct {
	Killer
	agent   *Agent
	running func(types.UID) Running
	log     *slog.Logger
}

// NewStopper stops what running finds of a pod, by its uid.
func NewStopper(killer Killer, agent *Agent, running func(types.UID) Running, log *slog.Logger) *Stopper {
	return &Stopper{Killer: killer, agent: agent, running: running, log: log}
}

// Kill begins to end a pod and returns at once. The error is that of the Killer
// below.
func (k *Stopper) Kill(v kill.Victim) error {
	s := &stop{k: k, Running: k.running(v.UID), pod: v.Name, ends: time.Now().Add(v.Grace)}
	if len(s.Sandboxes) == 0 {
		return k.Killer.Kill(v)
	}
	v.Ended = s.seal
	if v.Soft && v.Grace >= shortestStop && k.agent.Answers() {
		s.untold = make(chan struct{})
		v.Elsewhere = s.untold
	}
	if err := k.Killer.Kill(v); err != nil || s.untold == nil {
		return err
	}
	s.begin()
	return nil
}

// stop is one pod being stopped by the runtime. Its steps follow from answers.
type stop struct {
	k *Stopper
	Running
	pod    string
	ends   time.Time     // of the grace
	untold chan struct{} // closed when the runtime does not do it; nil where it was not asked

	mu      sync.Mutex
	waiting int // for answers
	given   bool
	sealed  bool
}

// begin stops the containers that are no sidecars.
func (s *stop) begin() {
	grace := time.Until(s.ends)
	if len(s.Sidecars) > 0 && grace > 2*lastSecond {
		grace -= lastSecond
	}
	s.mu.Lock()
	s.waiting = len(s.Containers)
	s.mu.Unlock()
	if len(s.Containers) == 0 {
		s.next()
		return
	}
	for _, id := range s.Containers {
		s.order(wire.Order{Kind: wire.StopContainer, Target: id, Grace: grace, Deadline: s.ends}, func() {
			s.mu.Lock()
			s.waiting--
			all := s.waiting == 0
			s.mu.Unlock()
			if all {
				s.next()
			}
		})
	}
}

// next stops the last sidecar, and the sandboxes when none is left.
func (s *stop) next() {
	if len(s.Sidecars) == 0 {
		s.seal()
		return
	}
	last := len(s.Sidecars) - 1
	id := s.Sidecars[last]
	s.Sidecars = slices.Delete(s.Sidecars, last, last+1)
	s.order(wire.Order{Kind: wire.StopContainer, Target: id, Grace: max(0, time.Until(s.ends)), Deadline: s.ends}, s.next)
}

// order gives an order of which the next step depends.
func (s *stop) order(o wire.Order, then func()) {
	err := s.k.agent.Order(o, func(err error) {
		if err != nil {
			s.giveUp(err)
			return
		}
		then()
	})
	if err != nil {
		s.giveUp(err)
	}
}

// giveUp leaves the pod to the Killer.
func (s *stop) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given {
		return
	}
	s.given = true
	s.k.log.Warn("the container runtime does not stop the pod: evictd does", "pod", s.pod, "error", err)
	close(s.untold)
}

// seal stops the sandboxes, so that nothing starts in them any more. It is done
// when all containers have been stopped, or when no process of the pod is left.
func (s *stop) seal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed {
		return
	}
	s.sealed = true
	for _, id := range s.Sandboxes {
		tell := func(err error) {
			if err != nil && !errors.Is(err, context.Canceled) { // evictd stops, and its agent a moment later
				s.k.log.Warn("the container runtime has not stopped the sandbox of an evicted pod", "pod", s.pod, "sandbox", id, "error", err)
			}
		}
		if err := s.k.agent.Order(wire.Order{Kind: wire.StopSandbox, Target: id, Deadline: time.Now().Add(tidy)}, tell); err != nil {
			tell(err)
		}
	}
}
