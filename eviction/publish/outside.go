package publish

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// outsideInterval is how often the users outside of the pods are measured again while a
// shortage is theirs.
const outsideInterval = 10 * time.Second

// outside is a shortage that is not that of the pods; nil where it is, or where there is
// none.
type outside struct {
	*nodestatus.Outside
	measured time.Time
}

// updateOutside measures the largest users of what is short where they are not the pods that may be
// evicted.
func (p *Publisher) updateOutside(r *control.Report) {
	for c := range p.outside {
		o := &p.outside[c]
		is, was := r.State.Pressure[c].Reported && r.State.Relief[c].Outside, o.Outside != nil
		p.metrics.outside.WithLabelValues(eviction.Condition(c).String()).Set(gaugeValue(is))
		if !is {
			*o = outside{}
			continue
		}
		if was && (!r.Sampled || r.At.Sub(o.measured) < outsideInterval) {
			continue
		}
		users := exempt(r, eviction.Condition(c))
		if p.cfg.OutsideUsers != nil && !withinPods(r, eviction.Condition(c)) {
			users = append(users, p.cfg.OutsideUsers(eviction.Condition(c))...)
		}
		found := nodestatus.NewOutside(eviction.Condition(c), users)
		*o = outside{&found, r.At}
		if !was {
			p.log.Warn("pods are evicted ten seconds apart: "+found.String(), "condition", found.Condition)
			p.event(wire.Event{
				At: r.At, Type: v1.EventTypeWarning, Reason: "UsageOutsidePods", Action: "Evicting",
				Note: fmt.Sprintf("%s: %s", found.Condition, found.String()),
			})
		}
	}
}

// withinPods reports whether all thresholds of a condition that are met are of the memory that the limit of the pods' cgroup
// bounds: nothing outside of the pods uses that.
func withinPods(r *control.Report, c eviction.Condition) (within bool) {
	for i := range r.Eviction.Thresholds {
		if t := &r.Eviction.Thresholds[i]; t.Signal.Condition() == c && !r.State.Thresholds[i].FirstObserved.IsZero() {
			if t.Signal != eviction.AllocatableMemoryAvailable {
				return false
			}
			within = true
		}
	}
	return within
}

// exempt are the pods that may not be evicted, and what they use.
func exempt(r *control.Report, c eviction.Condition) (users []nodestatus.User) {
	for i := range r.Candidates {
		pod, usage := r.Candidates[i].Pod, r.Candidates[i].Usage
		if pod.Protection == "" || usage == nil || c == eviction.DiskPressure {
			continue
		}
		used := usage.Memory
		if c == eviction.PIDPressure {
			used = usage.Threads
		}
		users = append(users, nodestatus.User{Name: fmt.Sprintf("pod %v (%s)", pod, pod.Protection), Used: used.Or(0)})
	}
	return users
}

// sayOutside adds to the messages of conditions whose usage it is that is short.
func (p *Publisher) sayOutside(conditions []v1.NodeCondition) {
	for c := range p.outside {
		if o := p.outside[c].Outside; o != nil && conditions[c].Status == v1.ConditionTrue {
			conditions[c].Message += "; " + o.String()
		}
	}
}
