package extender

import (
	"context"
	"fmt"

	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// scoring is a running request for scores; several extenders are called
// concurrently.
type scoring struct {
	cancel context.CancelFunc
	done   chan struct{}
	list   wire.HostPriorityList
	err    error
}

// PreScore starts the request, or skips pods in which the extender is not
// interested.
func (e *Extender) PreScore(c *framework.Cycle) framework.Status {
	e.abandon()
	if !e.interested(c.Pod.Object) {
		return framework.Status{Code: framework.Skip}
	}
	args := e.arguments(c, c.Rows)
	ctx, cancel := context.WithCancel(c.Context())
	s := &scoring{cancel: cancel, done: make(chan struct{})}
	e.scoring = s
	go func() {
		defer close(s.done)
		s.err = e.call(ctx, e.cfg.PrioritizeVerb, args, &s.list)
	}()
	return framework.Status{}
}

// abandon cancels a request whose response is not needed.
func (e *Extender) abandon() {
	if e.scoring != nil {
		e.scoring.cancel()
		<-e.scoring.done
		e.scoring = nil
	}
}

// Score waits for the response and maps 0..10 to 0..100. After an error all nodes
// score 0, as in kube-scheduler.
func (e *Extender) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	<-e.scoring.done
	list, err := e.scoring.list, e.scoring.err
	e.abandon()
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
