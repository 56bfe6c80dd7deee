package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// Option of a Runner.
type Option func(*Runner)

// EveryReason runs the remaining filters on a node after a filter has rejected it.
// Preemption is then tried only if all of them allow it. Source:
// alwaysCheckAllPredicates of the Policy API.
func EveryReason(r *Runner) { r.everyReason = true }

// rejectFurther runs the filters after the filter that rejected a node, except late
// ones.
func (r *Runner) rejectFurther(c *Cycle) Status {
	for row := range c.Evaluated.All() {
		first, rejected := c.Rejected(row)
		for i := int(first.filter) + 1; rejected && i < r.late; i++ {
			why, fits, s := c.runFilters(row, i, i+1)
			if s.Code == Error {
				return s
			}
			if !fits {
				first.Unresolvable = first.Unresolvable || why.Unresolvable
				c.further[row] = append(c.further[row], why)
			}
		}
		if rejected {
			c.rejections[row] = first
		}
	}
	return Status{}
}

// Further are the reasons of the further filters that reject a node; empty without
// EveryReason.
func (c *Cycle) Further(row nodetable.Row) (reasons []string) {
	for _, why := range c.further[row] {
		_, texts := c.Explain(why)
		reasons = append(reasons, texts...)
	}
	return reasons
}
