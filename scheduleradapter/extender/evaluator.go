package extender

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Evaluator runs the filters and scores of a profile for another scheduler. The
// goroutine that owns the table uses it.
type Evaluator struct {
	table  *nodetable.Table
	runner *framework.Runner
	cycle  framework.Cycle
}

// NewEvaluator makes an evaluator of a profile.
func NewEvaluator(table *nodetable.Table, runner *framework.Runner) *Evaluator {
	return &Evaluator{table: table, runner: runner}
}

// Result has the result by node name. Nodes that the table does not have are in
// neither map.
type Result struct {
	Rejected map[string]Rejection
	// Scores are the totals of the feasible nodes; with one score plugin they are 0
	// to 100.
	Scores map[string]int64
}

// Rejection is why a node is not feasible.
type Rejection struct {
	Reason       string
	Unresolvable bool // preemption does not help
}

// Evaluate filters and scores nodes for a pod.
func (e *Evaluator) Evaluate(now time.Time, pod *v1.Pod, nodes []string) (Result, error) {
	digest := nodetable.NewPod(pod)
	c := &e.cycle
	c.Now = now
	status := e.runner.Begin(c, e.table, digest, nil)
	if status.OK() {
		_, status = e.runner.Filter(c, 0, e.table.Len())
	}
	if status.OK() && !c.Feasible.Empty() {
		status = e.runner.Score(c)
	}
	if !status.OK() {
		return Result{}, fmt.Errorf("evaluate pod %s: %s", digest, status.Message())
	}
	v := Result{Rejected: map[string]Rejection{}, Scores: map[string]int64{}}
	totals := map[nodetable.Row]int64{}
	for i, row := range c.Rows {
		totals[row] = c.Totals[i]
	}
	for _, name := range nodes {
		row := e.table.Row(nodetable.Intern(name))
		if row == nodetable.NoRow {
			continue
		}
		if why, rejected := c.Rejected(row); rejected {
			_, reasons := c.Explain(why)
			v.Rejected[name] = Rejection{strings.Join(reasons, ", "), why.Unresolvable}
			continue
		}
		v.Scores[name] = totals[row]
	}
	return v, nil
}
