package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// EveryRejection asks each filter about a node, and lists those that reject it; not
// the ones that ask services outside. It leaves no trace in the cycle.
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
