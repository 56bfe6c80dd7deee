package cycle

import (
	"iter"
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Explain looks for a node as Attempt does, but at every node, and takes none: no
// victims are looked for, and where the next sample begins stays as it is. The cycle
// is the caller's. The pod must not be on a node in the table.
func (s *Scheduler) Explain(pod *nodetable.Pod, now time.Time) (*framework.Cycle, framework.Status) {
	p := s.profiles[pod.Object.Spec.SchedulerName]
	c := &framework.Cycle{Now: now}
	var nominated iter.Seq2[*nodetable.Pod, nodetable.Symbol]
	if s.nominations.Len() > 0 {
		nominated = s.nominations.All()
	}
	status := p.Begin(c, s.table, pod, nominated)
	if status.OK() {
		_, status = p.Filter(c, 0, c.Candidates()+1)
	}
	switch {
	case !status.OK():
	case c.Feasible.Empty():
		status = framework.Status{Code: framework.Unschedulable}
	default:
		status = p.Score(c)
	}
	return c, status
}
