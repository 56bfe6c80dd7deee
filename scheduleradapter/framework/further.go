package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// Option changes how a Runner works.
type Option func(*Runner)

// EveryReason asks about a node that a filter has rejected the filters behind it
// too. Nothing else is decided by it than that preempting pods helps where each
// of them says so. Source: alwaysCheckAllPredicates of legacy Policies.
func EveryReason(r *Runner) { r.everyReason = true }

// rejectFurther asks the filters that come after the one that rejected a node,
// but for the late ones.
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

// Further are the reasons of the filters that reject a node besides the first, in
// order; none unless the Runner has EveryReason.
func (c *Cycle) Further(row nodetable.Row) (reasons []string) {
	for _, why := range c.further[row] {
		_, texts := c.Explain(why)
		reasons = append(reasons, texts...)
	}
	return reasons
}
