package daemon

import (
	"context"
	"sync"

	"github.com/evictd/evictd/eviction"
)

// stepTaker takes steps of a kind on pods.
type stepTaker interface {
	// take returns at once.
	take(*eviction.StepAction)
	// run sends what has become of each step until ctx ends.
	run(ctx context.Context)
}

// podSteps takes the steps before evictions on pods, each kind in a goroutine of its own. It implements control.Steps.
type podSteps struct {
	takers   map[eviction.Step]stepTaker
	outcomes chan eviction.StepOutcome
}

// newPodSteps takes none in a dry run, and of the others those that the kernel allows.
func (d *Daemon) newPodSteps() *podSteps {
	s := &podSteps{takers: map[eviction.Step]stepTaker{}, outcomes: make(chan eviction.StepOutcome)}
	if !d.dryRun && d.withoutMemoryReclaim() == "" {
		s.takers[eviction.ReclaimMemory] = d.newMemoryReclaimer(s.outcomes)
	}
	if !d.dryRun && d.withoutThrottle() == "" {
		s.takers[eviction.Throttle] = d.newThrottler(s.outcomes)
	}
	return s
}

// Take implements control.Steps.
func (s *podSteps) Take(a *eviction.StepAction) {
	if t := s.takers[a.Step]; t != nil {
		t.take(a)
	}
}

// Outcomes implements control.Steps.
func (s *podSteps) Outcomes() <-chan eviction.StepOutcome { return s.outcomes }

// run takes steps until ctx ends.
func (s *podSteps) run(ctx context.Context) {
	var takers sync.WaitGroup
	for _, t := range s.takers {
		takers.Go(func() { t.run(ctx) })
	}
	takers.Wait()
}
