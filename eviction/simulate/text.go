package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evictd/evictd/eviction"
)

// Text is the step for people: one line with what changed and which thresholds
// are met, and under it what was done, each eviction with the reason why that
// pod ranks before the next candidate.
func (s *Step) Text() string {
	changes := s.Changes
	if len(changes) == 0 {
		changes = []string{"no change"}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s  %s\n", s.At, strings.Join(changes, "; "))
	under := func(format string, args ...any) { fmt.Fprintf(&b, "            "+format+"\n", args...) }
	for _, pod := range s.InFlight {
		under("%s is still being killed", pod)
	}
	if len(s.NodeReclaim) > 0 {
		under("reclaim %s", strings.Join(s.NodeReclaim, ", "))
	}
	if len(s.PassedOver) > 0 {
		under("passed over: %s", strings.Join(s.PassedOver, ", "))
	}
	for _, pod := range s.EndAgain {
		under("%s runs again after its eviction, and is killed", pod)
	}
	for _, pod := range s.FailedKills {
		under("kill of %s failed", pod)
	}
	for i := range s.Before {
		under("%s", s.Before[i].Text())
	}
	for _, c := range s.Restarts {
		under("restart container %s of %s for %s in %v: %s", c.Container, c.Pod, c.Signal, time.Duration(c.GracePeriodSeconds)*time.Second, c.Because)
	}
	for _, e := range s.Evictions {
		under("evict %s for %s in %v: %s", e.Pod, e.Signal, time.Duration(e.GracePeriodSeconds)*time.Second, e.Because)
	}
	return b.String()
}

// Quiet says whether nothing changed and nothing was done, so that Text says so.
func (s *Step) Quiet() bool {
	return len(s.Changes)+len(s.InFlight)+len(s.NodeReclaim)+len(s.PassedOver)+len(s.EndAgain)+len(s.FailedKills)+len(s.Before)+len(s.Restarts)+len(s.Evictions) == 0
}

// changes lists each threshold that is met or was, and each condition that turned.
func (r *runner) changes(before *eviction.State, in *eviction.Input, met []eviction.Met) []string {
	var changes []string
	for i := range r.config.Thresholds {
		t := &r.config.Thresholds[i]
		was, is := before.Thresholds[i], r.driver.State.Thresholds[i]
		acts := slices.ContainsFunc(met, func(m eviction.Met) bool { return m.Threshold == t })
		switch available, measured := in.Signals[t.Signal].Available.Get(); {
		case !is.FirstObserved.IsZero():
			side, more := "below", " + "
			if t.Signal == eviction.MemoryStall {
				side, more = "above", " - "
			}
			phrase := fmt.Sprintf("%v %s %s %s", t.Signal, t.Signal.Quantity(available), side, t.FormatValue())
			if was.Acting && t.MinReclaim != (eviction.Value{}) {
				phrase += more + t.FormatMinReclaim()
			}
			phrase += " (" + t.Kind()
			if !is.Acting {
				phrase += fmt.Sprintf(", acts in %v", t.Grace-in.Now.Sub(is.FirstObserved))
			} else if !acts {
				phrase += ", waits for a new measurement"
			} else if r.driver.State.Relief[t.Signal.Condition()].Outside {
				phrase += ", used by others than pods that may be evicted"
			}
			changes = append(changes, phrase+")")
		case !was.FirstObserved.IsZero() && measured:
			changes = append(changes, fmt.Sprintf("%v %s clear of %s (%s)", t.Signal, t.Signal.Quantity(available), t.FormatValue(), t.Kind()))
		case !was.FirstObserved.IsZero():
			changes = append(changes, fmt.Sprintf("%v not measured (%s)", t.Signal, t.Kind()))
		}
	}
	for c := range r.driver.State.Pressure {
		if reported := r.driver.State.Pressure[c].Reported; reported != before.Pressure[c].Reported {
			sign := map[bool]string{true: "+", false: "-"}[reported]
			changes = append(changes, sign+eviction.Condition(c).String())
		}
	}
	return changes
}
