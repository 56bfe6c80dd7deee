package eviction

import (
	"fmt"
	"slices"
	"time"
)

// Warnings is the configuration of Warn.
type Warnings struct {
	// Namespaces are those in which the Notify of a pod counts; without any no pod is warned.
	Namespaces []string
	// Lead is how long before a hard threshold, or its limit, is reached a container is warned, and
	// how long a warning stays in effect without a cause.
	Lead time.Duration
	// Interval is the least time between two warnings of a container.
	Interval time.Duration
}

// of says whether the pod is warned.
func (w *Warnings) of(p *Pod) bool {
	return p.Notify.Asks() && slices.Contains(w.Namespaces, p.Namespace)
}

// nearLimit is the part of a container's limit that is left at most while a warning of it
// stays in effect without growth.
const nearLimit = 16

// warnCause is why a container is warned: a soft threshold of memory is crossed, a hard one is, or will be
// within the lead, or the container uses up its limit within the lead. Containers that are not
// measured do not run.
func (st *State) warnCause(cfg *Config, in *Input, c *Candidate, container int, warned bool) (Cause, string) {
	spec := &c.Pod.Containers[container]
	if !cfg.Warnings.of(c.Pod) || spec.Ephemeral || c.Pod.Notify.Container != "" && c.Pod.Notify.Container != spec.Name ||
		c.Usage == nil || container >= len(c.Usage.Containers) {
		return Cause{}, ""
	}
	if !c.Usage.Containers[container].Memory.IsKnown() {
		return Cause{}, ""
	}
	for _, hard := range []bool{false, true} {
		for i := range cfg.Thresholds {
			if t := &cfg.Thresholds[i]; t.Hard() == hard && t.Signal.Condition() == MemoryPressure {
				if figures := st.nears(i, t, &in.Signals[t.Signal], cfg.Warnings.Lead); figures != "" {
					return t.cause(), figures
				}
			}
		}
	}
	return c.nearsLimit(container, cfg.Warnings.Lead, warned)
}

// nearsLimit is the cause that a container uses up its limit within the lead, or nothing. A step in effect stays so
// while the container is near its limit.
func (c *Candidate) nearsLimit(container int, lead time.Duration, taken bool) (Cause, string) {
	if c.Usage == nil || container >= len(c.Usage.Containers) {
		return Cause{}, ""
	}
	spec, usage := &c.Pod.Containers[container], &c.Usage.Containers[container]
	memory, measured := usage.Memory.Get()
	if !measured {
		return Cause{}, ""
	}
	left := spec.MemoryLimit - memory
	switch until := lasts(left, usage.Growth); {
	case spec.MemoryLimit == 0:
	case usage.Growth > 0 && until <= lead:
		return Cause{Kind: ContainerLimit}, fmt.Sprintf("the container uses %s of its limit of %s, which it reaches in %v", MemoryAvailable.Rounded(memory), MemoryAvailable.Rounded(spec.MemoryLimit), until)
	case taken && left < spec.MemoryLimit/nearLimit:
		return Cause{Kind: ContainerLimit}, fmt.Sprintf("the container uses %s of its limit of %s", MemoryAvailable.Rounded(memory), MemoryAvailable.Rounded(spec.MemoryLimit))
	}
	return Cause{}, ""
}

// nears says with figures that a signal is below a threshold, or will be below a hard one within the lead;
// empty otherwise. A soft threshold is as of the last housekeeping pass.
func (st *State) nears(i int, t *Threshold, o *Observation, lead time.Duration) string {
	available, measured := o.Available.Get()
	required, known := t.Value.Of(*o)
	if !measured || !known {
		return ""
	}
	figures := fmt.Sprintf("%v is %s, and the %s threshold %s", t.Signal, t.Signal.Rounded(available), t.Kind(), t.FormatValue())
	if !t.Hard() {
		if st.Thresholds[i].FirstObserved.IsZero() {
			return ""
		}
		return figures
	}
	until := lasts(available-required, -o.PerSecond)
	switch {
	case t.crossed(*o, false):
		return figures
	case o.PerSecond < 0 && required > 0 && until <= lead:
		return fmt.Sprintf("%s, which is crossed in %v", figures, until)
	}
	return ""
}

// lasts is how long an amount lasts at a rate, units a second, in tenths of a second; meaningless for a
// rate that is not positive.
func lasts(amount, rate int64) time.Duration {
	const horizon = 24 * 60 * 60
	seconds := min(max(float64(amount), 0)/max(float64(rate), 1), horizon)
	return time.Duration(seconds * float64(time.Second)).Round(time.Second / 10)
}
