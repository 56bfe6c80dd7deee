package extender

import (
	"fmt"

	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// PreScore starts the request, or skips pods in which the extender is not
// interested. Several extenders are called concurrently.
func (e *Extender) PreScore(c *framework.Cycle) framework.Status {
	if !e.interested(c.Pod.Object) {
		return framework.Status{Code: framework.Skip}
	}
	e.scoring = e.ask(c, e.cfg.PrioritizeVerb, c.Rows, func() any { return e.arguments(c, c.Rows) }, &wire.HostPriorityList{})
	return framework.Status{}
}

// Score waits for the response and maps 0..10 to 0..100. After an error all nodes
// score 0, as in kube-scheduler.
func (e *Extender) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	if err := c.Await(e.scoring); err != nil {
		return framework.AsStatus(err)
	}
	list, err := *e.scoring.result.(*wire.HostPriorityList), e.scoring.err
	clear(scores)
	byNode := make(map[string]int64, len(list))
	for _, p := range list {
		if p.Score < wire.MinExtenderPriority || p.Score > wire.MaxExtenderPriority {
			err = fmt.Errorf("score %d of node %q is not within %d to %d", p.Score, p.Host, wire.MinExtenderPriority, wire.MaxExtenderPriority)
			break
		}
		byNode[p.Host] = p.Score
	}
	if err != nil {
		e.ignore(err)
		return framework.Status{}
	}
	for i, row := range rows {
		scores[i] = byNode[c.Table.Node(row).Name.Value()] * (framework.MaxScore / wire.MaxExtenderPriority)
	}
	return framework.Status{}
}
