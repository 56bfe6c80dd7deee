package publish

import (
	"fmt"
	"slices"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
)

// unmeasuredPatience is how long a signal with a threshold may be unmeasured before that is a warning.
const unmeasuredPatience = time.Minute

// measureGap is since when a signal with a threshold has not been measured; zero while it is. Said: it was logged.
type measureGap struct {
	since time.Time
	said  bool
}

// unmeasured is why no configured threshold of a signal can be evaluated; empty if one can, or none is configured. The
// thresholds of allocatableMemory.available and of containerfs follow those of other signals.
func (c *Config) unmeasured(cfg *eviction.Config, s eviction.Signal, o eviction.Observation) string {
	if s == eviction.AllocatableMemoryAvailable || s == eviction.ContainerFsAvailable || s == eviction.ContainerFsInodesFree {
		return ""
	}
	i := slices.IndexFunc(cfg.Thresholds, func(t eviction.Threshold) bool { return t.Signal == s && !(o.Available.IsKnown() && t.AboveDisk(o)) })
	above := slices.IndexFunc(cfg.Thresholds, func(t eviction.Threshold) bool { return t.Signal == s && t.AboveDisk(o) })
	switch {
	case i < 0 && above < 0:
		return ""
	case i < 0:
		return fmt.Sprintf("the threshold %s is not below the capacity, %s", cfg.Thresholds[above].FormatValue(), s.Quantity(o.Capacity.Or(0)))
	case o.Available.IsKnown():
		return ""
	}
	if c.Fault != nil {
		if err := c.Fault(s); err != nil {
			return err.Error()
		}
	}
	switch s {
	case eviction.NodeFsInodesFree, eviction.ImageFsInodesFree:
		return "the filesystem has no fixed number of inodes"
	case eviction.SwapAvailable:
		return "the machine has no swap"
	}
	return "it was not measured yet"
}

// followUnmeasured logs the signals whose thresholds could not be evaluated for unmeasuredPatience, and when they can.
func (p *Publisher) followUnmeasured(r *control.Report) {
	for s := range p.gaps {
		signal, u := eviction.Signal(s), &p.gaps[s]
		why := p.cfg.unmeasured(r.Eviction, signal, r.Observations[s])
		switch {
		case why == "" && u.said:
			p.log.Info("a threshold can be evaluated", "signal", signal)
			fallthrough
		case why == "":
			*u = measureGap{}
		case u.since.IsZero():
			u.since = r.At
		case !u.said && r.At.Sub(u.since) >= unmeasuredPatience:
			u.said = true
			p.log.Warn("a threshold cannot be evaluated: nothing is evicted for it", "signal", signal, "for", r.At.Sub(u.since).Round(time.Second), "because", why)
		}
	}
}
