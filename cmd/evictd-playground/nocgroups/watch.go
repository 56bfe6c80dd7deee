package nocgroups

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/internal/process"
)

const (
	// calm passes before the leak starts.
	calm = 2 * time.Second
	// barInterval is between two lines that show how memory falls.
	barInterval = 500 * time.Millisecond
)

// follow starts the leak and shows what happens, until all has, what must not happen
// does, or ctx ends.
func (s *script) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, console.Patience)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { s.watchMemory(ctx) })
	watching.Go(func() { s.watchNode(ctx) })
	watching.Go(func() { s.watchEnd(ctx, s.daemon.Process, s.daemonEnded) })
	for _, p := range s.pods {
		watching.Go(func() { s.watchEnd(ctx, p.Process.Process, func() { s.podEnded(ctx, p) }) })
	}
	leak := time.After(calm)
	bars := time.NewTicker(barInterval)
	defer bars.Stop()
	for s.broken == nil && !s.strayed && (s.died.IsZero() || s.back.IsZero() || s.cleared.IsZero()) {
		s.showStep()
		select {
		case <-ctx.Done():
			return nil // the claims say what is missing
		case happened := <-s.seen:
			happened()
			s.shorten()
		case <-leak:
			s.leak()
		case <-bars.C:
			if left := s.left.Load(); s.leaking && s.crossed.IsZero() {
				s.Print(time.Now(), console.Bold, "memory", "%s %s left", s.Bar(left, nodeMemory, threshold), console.Size(left))
			}
		}
	}
	return s.broken
}

// showStep shows how far the script has come.
func (s *script) showStep() {
	const all = 4
	switch {
	case s.daemon == nil:
		s.Step(0, all, "the node starts")
	case s.crossed.IsZero():
		s.Step(1, all, "a pod leaks")
	case s.died.IsZero() || s.back.IsZero():
		s.Step(2, all, "it is evicted")
	default:
		s.Step(3, all, "the node recovers")
	}
}

// send hands what a goroutine saw to follow.
func (s *script) send(ctx context.Context, happened func()) {
	select {
	case s.seen <- happened:
	case <-ctx.Done():
	}
}

// watchMemory reads the node every millisecond, and sees the threshold crossed
// both ways.
func (s *script) watchMemory(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for below := false; ; {
		available, at := s.node.available(), time.Now()
		s.left.Store(available)
		s.least.Store(min(available, s.least.Load()))
		if below != (available < threshold) {
			below = !below
			s.send(ctx, func() { s.memoryTurned(at, available) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// memoryTurned shows that the threshold was crossed, or is kept again.
func (s *script) memoryTurned(at time.Time, available int64) {
	if available < threshold {
		if s.crossed.IsZero() {
			s.crossed = at
		}
		s.Print(at, console.Red, "memory", "%s %s left: below the threshold", s.Bar(available, nodeMemory, threshold), console.Size(available))
		return
	}
	s.back = at
	s.Print(at, console.Green, "memory", "%s %s left: the threshold is kept again", s.Bar(available, nodeMemory, threshold), console.Size(available))
}

// watchNode sees changes of the file that evictd publishes the Node in.
func (s *script) watchNode(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for last := []byte(nil); ; {
		text, err := os.ReadFile(s.daemon.nodeFile())
		at := time.Now()
		if err == nil && !bytes.Equal(text, last) {
			last = text
			var published v1.Node
			err := yaml.Unmarshal(text, &published)
			s.send(ctx, func() { s.nodeTurned(at, &published, err) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// nodeTurned shows the condition and its taint.
func (s *script) nodeTurned(at time.Time, published *v1.Node, err error) {
	if err != nil {
		s.broken = fmt.Errorf("read the Node file: %w", err)
		return
	}
	raised := slices.ContainsFunc(published.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
	})
	taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
	tainted := slices.ContainsFunc(published.Spec.Taints, func(t v1.Taint) bool { return t.MatchTaint(&taint) })
	switch {
	case raised && tainted && s.raised.IsZero():
		s.raised = at
		s.Print(at, console.Yellow, "node", "MemoryPressure=True, taint %s: nothing new comes here", taint.ToString())
	case !raised && !tainted && !s.raised.IsZero():
		s.cleared = at
		s.Print(at, console.Green, "node", "MemoryPressure=False, no taint, %v after the threshold was kept again", at.Sub(s.back).Round(100*time.Millisecond))
	}
}

// watchEnd sees a process end, unless the script ends it.
func (s *script) watchEnd(ctx context.Context, p *process.Process, happened func()) {
	select {
	case <-p.Ended():
		s.send(ctx, happened)
	case <-ctx.Done():
	}
}

func (s *script) daemonEnded() { s.broken = s.daemon.Ending() }

// shorten shortens the transition period once the condition has been seen and
// nothing is left of its cause.
func (s *script) shorten() {
	if s.shortened || s.raised.IsZero() || s.died.IsZero() || s.back.IsZero() {
		return
	}
	if err := s.daemon.EndConditions(transition); err != nil {
		s.broken = fmt.Errorf("shorten the transition period: %w", err)
	}
	s.shortened = true
	s.Print(time.Now(), console.Bold, "playground", "the condition outlives its cause by %v from now on: evictd reloads its configuration", transition)
}

// podEnded shows which pod has ended, and evictd's reason.
func (s *script) podEnded(ctx context.Context, p *pod) {
	if ctx.Err() != nil { // of the script's end
		return
	}
	at, state := p.End()
	if p != s.leaker {
		s.strayed = true
		s.Print(at, console.Red, "died", "%v: %v", p, state)
		return
	}
	s.died = at
	for s.confirm(ctx); ctx.Err() == nil && s.daemon.Running() && !s.confirmed(); s.confirm(ctx) {
		time.Sleep(5 * time.Millisecond)
	}
	if !s.confirmed() {
		s.Print(at, console.Red, "died", "%v: %v, and evictd does not say that it is gone", p, state)
		return
	}
	if s.crossed.IsZero() {
		s.crossed, s.back = s.crossing(), at
	}
	e := s.evictions[0]
	s.Print(at, console.Red, "evicted", "%s (%v), %s from the crossing to its end", e.Pod, state, console.Span(at.Sub(s.crossing())))
	s.More("%s", strings.TrimSpace(e.Message))
	s.More("why this one: %s", e.Because)
}

// confirm asks evictd for its evictions.
func (s *script) confirm(ctx context.Context) {
	if status, err := s.daemon.Status(ctx); err == nil {
		s.evictions = status.Evictions
	}
}

func (s *script) confirmed() bool { return len(s.evictions) > 0 && !s.evictions[0].Gone.IsZero() }

// leak starts the leak.
func (s *script) leak() {
	if err := s.leaker.leak(); err != nil {
		s.broken = fmt.Errorf("start the leak: %w", err)
		return
	}
	s.leaking = true
	s.Print(time.Now(), console.Bold, "leak", "%v takes %s more a second, and would stop by itself at %s more", s.leaker, console.Size(leakRate), console.Size(leakMost))
}
