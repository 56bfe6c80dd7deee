package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// EveryRejection runs each filter for a node, except late ones, and lists the
// rejections. It restores the cycle.
func (c *Cycle) EveryRejection(row nodetable.Row) (all []Rejection, s Status) {
	for i := range c.runner.late {
		if c.skipFilter[i] {
			continue
		}
		why, fits, s := c.runFilters(row, i, i+1)
		if s.Code == Error {
			return all, s
		}
		if !fits {
			all = append(all, why)
		}
	}
	return all, Status{}
}
