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
	// shortestStop is the shortest grace of StopContainer: the CRI counts whole seconds.
	shortestStop = time.Second
	// lastSecond of a grace is left to the sidecars.
	lastSecond = time.Second
	// sandboxTimeout is how long the stop of a sandbox may take once its pod has ended.
	sandboxTimeout = time.Minute
)

// Running is what the runtime runs of a pod, by ids.
type Running struct {
	// Containers to stop together and, when all of those have ended, Sidecars to
	// stop one after the other.
	Containers, Sidecars []string
	Sandboxes            []string
}

// CRIStopper is a Killer that stops soft victims by the container runtime (StopContainer of
// the CRI), which sends the stop signal of each image and does not restart what it stops.
// The Killer below kills them at the end of their grace, whatever the runtime has done. Hard
// victims it kills at once; their sandboxes are stopped when they are gone. What is stopped
// elsewhere already it leaves alone.
type CRIStopper struct {
	Killer
	agent   *Agent
	running func(uid types.UID, container string) Running
	log     *slog.Logger
}

// NewCRIStopper stops what running returns for the uid of a pod, and for the name of one of its containers where only
// that is ended.
func NewCRIStopper(killer Killer, agent *Agent, running func(uid types.UID, container string) Running, log *slog.Logger) *CRIStopper {
	return &CRIStopper{Killer: killer, agent: agent, running: running, log: log}
}

// Kill starts to stop or kill a pod and returns at once. The error is that of the Killer
// below.
func (k *CRIStopper) Kill(v kill.Victim) error {
	s := &stop{k: k, Running: k.running(v.UID, v.Container), pod: v.Name, ends: time.Now().Add(v.Grace)}
	if len(s.Sandboxes)+len(s.Containers) == 0 || v.Container != "" && !v.Soft {
		return k.Killer.Kill(v)
	}
	if v.Container == "" {
		v.Ended = s.stopSandboxes
	}
	if v.Soft && v.Elsewhere == nil && v.Grace >= shortestStop && k.agent.Answers() {
		s.failed = make(chan struct{})
		v.Elsewhere = s.failed
	}
	if err := k.Killer.Kill(v); err != nil || s.failed == nil {
		return err
	}
	s.stopContainers()
	return nil
}

// stop is the stop of one pod by the runtime. Each step follows from an answer.
type stop struct {
	k *CRIStopper
	Running
	pod    string
	ends   time.Time     // of the grace
	failed chan struct{} // closed when the runtime does not stop the pod; nil without a request

	mu               sync.Mutex
	waiting          int  // for answers
	gaveUp           bool // failed is closed
	sandboxesStopped bool
}

// stopContainers stops the containers that are no sidecars.
func (s *stop) stopContainers() {
	grace := time.Until(s.ends)
	if len(s.Sidecars) > 0 && grace > 2*lastSecond {
		grace -= lastSecond
	}
	s.mu.Lock()
	s.waiting = len(s.Containers)
	s.mu.Unlock()
	if len(s.Containers) == 0 {
		s.stopSidecars()
		return
	}
	for _, id := range s.Containers {
		s.order(wire.Order{Kind: wire.StopContainer, Target: id, Grace: grace, Deadline: wire.Instant{Time: s.ends}}, func() {
			s.mu.Lock()
			s.waiting--
			all := s.waiting == 0
			s.mu.Unlock()
			if all {
				s.stopSidecars()
			}
		})
	}
}

// stopSidecars stops the last sidecar, and the sandboxes when none is left.
func (s *stop) stopSidecars() {
	if len(s.Sidecars) == 0 {
		s.stopSandboxes()
		return
	}
	last := len(s.Sidecars) - 1
	id := s.Sidecars[last]
	s.Sidecars = slices.Delete(s.Sidecars, last, last+1)
	s.order(wire.Order{Kind: wire.StopContainer, Target: id, Grace: max(0, time.Until(s.ends)), Deadline: wire.Instant{Time: s.ends}}, s.stopSidecars)
}

// order sends an order; then is the next step.
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
	if s.gaveUp {
		return
	}
	s.gaveUp = true
	s.k.log.Warn("the container runtime does not stop the pod, evictd signals it", "pod", s.pod, "error", err)
	close(s.failed)
}

// stopSandboxes stops the sandboxes, so that no container starts in them. It is called when
// all containers have been stopped, or no process of the pod is left.
func (s *stop) stopSandboxes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxesStopped {
		return
	}
	s.sandboxesStopped = true
	for _, id := range s.Sandboxes {
		report := func(err error) {
			if err != nil && !errors.Is(err, context.Canceled) { // evictd stops, its agent later
				s.k.log.Warn("the container runtime has not stopped the sandbox of an evicted pod", "pod", s.pod, "sandbox", id, "error", err)
			}
		}
		if err := s.k.agent.Order(wire.Order{Kind: wire.StopSandbox, Target: id, Deadline: wire.Instant{Time: time.Now().Add(sandboxTimeout)}}, report); err != nil {
			report(err)
		}
	}
}
