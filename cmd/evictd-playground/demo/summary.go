package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/nodestatus/render"
)

// sumUp writes the figures and judges what must hold. It is console.ErrNotHeld where
// something did not.
func (s *script) sumUp() error {
	s.Print(time.Now(), console.Bold, "summary", "")
	if s.pressed != nil {
		s.measures()
	}
	return s.Judge(s.claims())
}

// measures are by the playground's own clock, beside evictd's. What did not happen
// is left out.
func (s *script) measures() {
	rows := [][]string{}
	section := func(head string, from time.Time, lines ...line) {
		lines = slices.DeleteFunc(lines, func(l line) bool { return from.IsZero() || l.at.IsZero() })
		if len(lines) > 0 {
			rows = append(rows, []string{head, "", "SEEN BY"})
		}
		for _, l := range lines {
			rows = append(rows, []string{"  " + l.what, console.Span(l.at.Sub(from)), l.by})
		}
	}
	watched := "a watch of " + s.published
	e, leaker := s.eviction, s.pod(s.leaker)
	replacement := s.replacement()
	if replacement == nil {
		replacement = &pod{}
	}
	section("AFTER THE CROSSING", s.crossing(),
		line{"evictd saw it", e.Crossed.Time, "evictd"}, line{"evictd decided", e.Decided.Time, "evictd"},
		line{"first signal", e.Signalled.Time, "evictd"}, line{"no process left", e.Gone.Time, "evictd"},
		line{"its end was seen", leaker.gone, "the playground"}, line{"the threshold was kept again", s.back, "the playground"},
		line{"condition", s.pressed.raised, watched}, line{"taint", s.pressed.tainted, watched},
		line{"pod Failed/Evicted", leaker.failed, watched}, line{"replacement created", replacement.created, watched},
		line{"replacement bound", replacement.bound, watched}, line{"replacement ready", replacement.running, watched})
	urgent := s.pod(s.urgent)
	lines := []line{{"nominated", urgent.nominated, watched}}
	for _, uid := range s.victims {
		lines = append(lines, line{"victim preempted", s.pod(uid).doomed, watched}, line{"victim gone", s.pod(uid).gone, watched})
	}
	section("AFTER THE URGENT POD CAME", urgent.created, append(lines, line{"bound", urgent.bound, watched}, line{"ready", urgent.running, watched})...)
	newcomer := s.pod(s.newcomer)
	section("AFTER THE THRESHOLD WAS KEPT AGAIN", s.back,
		line{"condition False", s.pressed.cleared, watched}, line{"taint gone", s.pressed.untainted, watched},
		line{"newcomer bound", newcomer.bound, watched}, line{"newcomer ready", newcomer.running, watched})
	s.Table(rows)
	s.More("at the worst %dKi below the threshold; freed %s", max(0, s.pressed.threshold-s.gauge.least.Load())/1024, cmp.Or(render.Short(memoryAvailable, e.Freed), "an amount that was not measured"))
}

// line is one figure.
type line struct {
	what string
	at   time.Time
	by   string
}

// crossing is when the threshold was crossed, as the first of the two saw it. The
// playground may see nothing where the machine is busy and evictd quick.
func (s *script) crossing() time.Time {
	if seen := s.eviction.Crossed.Time; s.crossed.IsZero() || !seen.IsZero() && seen.Before(s.crossed) {
		return seen
	}
	return s.crossed
}

func (s *script) claims() []console.Claim {
	leaker, newcomer, tolerant, urgent := s.pod(s.leaker), s.pod(s.newcomer), s.pod(s.tolerant), s.pod(s.urgent)
	n := s.pressed
	if n == nil {
		n = &node{}
	}
	replacement := s.replacement()
	return []console.Claim{
		{Text: "every pod was placed where its workload asks for it", Held: s.placed},
		{Text: fmt.Sprintf("evictd evicted %s, which is not %s, the biggest", s.eviction.Pod, s.biggest), Held: s.eviction.UID != "" && s.eviction.UID == s.leaker && s.eviction.Pod != s.biggest},
		{Text: "the API has it as Failed/Evicted, with evictd's message", Held: leaker.Status.Phase == v1.PodFailed && leaker.Status.Reason == "Evicted" && leaker.Status.Message == s.eviction.Message},
		{Text: "condition and taint were in the API before the newcomer was", Held: newcomer.follows(n.raised) && newcomer.follows(n.tainted)},
		{Text: "no other pod ended, and no container was restarted", Held: s.othersUntouched()},
		{Text: "the replacement runs on another node", Held: replacement != nil && !replacement.running.IsZero() && replacement.Spec.NodeName != n.name},
		{Text: "the BestEffort newcomer was kept away for the taint", Held: s.waited && strings.Contains(newcomer.refused, "untolerated taint")},
		{Text: "the tolerant one was let in", Held: tolerant.Spec.NodeName == n.name && !tolerant.running.IsZero()},
		{Text: "the urgent one took the room of one less important, which ended in order", Held: s.preempted(urgent)},
		{Text: "the node healed, and the newcomer runs there", Held: !n.cleared.IsZero() && !n.untainted.IsZero() && newcomer.Spec.NodeName == n.name && !newcomer.running.IsZero()},
		{Text: "the kernel killed no process for lack of memory", Held: s.spared()},
	}
}

// othersUntouched looks at every pod but the leaker and those preempted.
func (s *script) othersUntouched() bool {
	for uid, p := range s.pods {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				return false
			}
		}
		if uid != s.leaker && p.disrupted() == "" && p.ended() {
			return false
		}
	}
	return len(s.pods) > 0
}

func (s *script) preempted(by *pod) bool {
	if len(s.victims) != 1 {
		return false
	}
	victim := s.pod(s.victims[0])
	return *victim.Spec.Priority < *by.Spec.Priority && inOrder(victim.Pod) && victim.Spec.NodeName == by.Spec.NodeName &&
		!victim.gone.IsZero() && !by.running.IsZero()
}

// spared says that the runners saw no process killed by the kernel.
func (s *script) spared() bool {
	for _, p := range s.pods {
		for _, c := range p.Status.ContainerStatuses {
			for _, state := range []v1.ContainerState{c.State, c.LastTerminationState} {
				if state.Terminated != nil && state.Terminated.Reason == "OOMKilled" {
					return false
				}
			}
		}
	}
	return true
}
