package extender

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Jury judges nodes for another scheduler, by the filters and scores of a profile.
// It belongs to the goroutine that owns the table.
type Jury struct {
	table  *nodetable.Table
	runner *framework.Runner
	cycle  framework.Cycle
}

// NewJury makes a jury of a profile.
func NewJury(table *nodetable.Table, runner *framework.Runner) *Jury {
	return &Jury{table: table, runner: runner}
}

// Verdict is what is said of nodes, by name. Of a node that is in neither map
// nothing is known.
type Verdict struct {
	Refused map[string]Refusal
	// Scores are the totals of the others; they fit where those are 0 to 100.
	Scores map[string]int64
}

// Refusal is why a pod should not go to a node.
type Refusal struct {
	Reason       string
	Unresolvable bool // whoever is preempted there
}

// Judge says what is known of nodes for a pod.
func (j *Jury) Judge(now time.Time, pod *v1.Pod, nodes []string) (Verdict, error) {
	digest, err := nodetable.NewPod(pod)
	if err != nil {
		return Verdict{}, err
	}
	c := &j.cycle
	c.Now = now
	status := j.runner.Begin(c, j.table, digest, nil)
	if status.OK() {
		_, status = j.runner.Filter(c, 0, j.table.Len())
	}
	if status.OK() && !c.Feasible.Empty() {
		status = j.runner.Score(c)
	}
	if !status.OK() {
		return Verdict{}, fmt.Errorf("judge pod %s: %s", digest, status.Message())
	}
	v := Verdict{Refused: map[string]Refusal{}, Scores: map[string]int64{}}
	totals := map[nodetable.Row]int64{}
	for i, row := range c.Rows {
		totals[row] = c.Totals[i]
	}
	for _, name := range nodes {
		row := j.table.Row(nodetable.Intern(name))
		if row == nodetable.NoRow {
			continue
		}
		if why, rejected := c.Rejected(row); rejected {
			_, reasons := c.Explain(why)
			v.Refused[name] = Refusal{strings.Join(reasons, ", "), why.Unresolvable}
			continue
		}
		v.Scores[name] = totals[row]
	}
	return v, nil
}
