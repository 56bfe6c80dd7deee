package simulate

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Text reports tables for people.
type Text struct {
	out        io.Writer
	placements []string
	events     []string
	groups     []string
	failed     []types.UID // in the order of their first failure
	failures   map[types.UID]*failure
}

// failure is the last attempt of a pod that was not scheduled.
type failure struct {
	title, message string
	table          *nodetable.Table
	nodes          []rejectingNodes
}

// rejectingNodes have the same reason.
type rejectingNodes struct {
	plugin, reason string
	rows           nodetable.Bits
}

// NewText writes to w at the end.
func NewText(w io.Writer) *Text { return &Text{out: w, failures: map[types.UID]*failure{}} }

func (t *Text) Attempt(a *Attempt) {
	if a.Outcome == cycle.Scheduled {
		delete(t.failures, a.Pod.UID)
		t.placements = append(t.placements, placement(a))
		return
	}
	if t.failures[a.Pod.UID] == nil {
		t.failed = append(t.failed, a.Pod.UID)
	}
	r := &failure{title: title(a), message: a.Message}
	if a.Cycle != nil {
		r.table, r.nodes = a.Cycle.Table, firstReasons(a.Cycle)
	}
	t.failures[a.Pod.UID] = r
}

func placement(a *Attempt) string {
	c := a.Cycle
	score := "-" // a single node is not scored
	if len(c.Totals) > 0 {
		row := c.Table.Row(nodetable.Intern(a.Node))
		score = fmt.Sprint(c.Totals[slices.Index(c.Rows, row)])
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d of %d", a.Pod, a.Node, a.At, score, c.Feasible.Count(), c.Evaluated.Count())
}

func title(a *Attempt) string {
	switch a.Outcome {
	case cycle.Nominated:
		return fmt.Sprintf("%s waits for victims on %s", a.Pod, a.Nominated)
	case cycle.Waiting:
		return fmt.Sprintf("%s waits for Permit on %s", a.Pod, a.Node)
	case cycle.Gated:
		return fmt.Sprintf("%s is gated", a.Pod)
	case cycle.Failed:
		return fmt.Sprintf("%s: the attempt failed", a.Pod)
	default:
		return fmt.Sprintf("%s does not fit", a.Pod)
	}
}

// firstReasons groups the rejected nodes of an attempt.
func firstReasons(c *framework.Cycle) []rejectingNodes {
	rows := map[framework.Rejection]nodetable.Bits{}
	for row := range c.Evaluated.All() {
		if why, rejected := c.Rejected(row); rejected {
			if rows[why] == nil {
				rows[why] = nodetable.Bits(nil).Emptied(c.Table.Rows())
			}
			rows[why].Set(row)
		}
	}
	var nodes []rejectingNodes
	for why, rows := range rows {
		plugin, reasons := c.Explain(why)
		nodes = append(nodes, rejectingNodes{plugin, reasons[0], rows})
	}
	return nodes
}

func (t *Text) Event(e *Event) {
	why := "by preemption"
	if e.By == ByTaint {
		why = "for a taint"
	}
	if e.Taint != "" {
		why = "for the taint " + e.Taint
	}
	t.events = append(t.events, fmt.Sprintf("%s\t%s\t%s\t%s %s", e.Pod, e.Node, e.At, e.Kind, why))
}

func (t *Text) PodGroup(g *PodGroup) {
	t.groups = append(t.groups, fmt.Sprintf("%s/%s\t%s\t%s\t%s", g.Group.Namespace, g.Group.Name, g.At, g.Condition.Reason, g.Condition.Message))
}

func (t *Text) End(s Summary) error {
	out := bufio.NewWriter(t.out)
	columns(out, "POD\tNODE\tAT\tSCORE\tFEASIBLE", t.placements)
	columns(out, "POD\tNODE\tAT\tWHAT", t.events)
	columns(out, "POD GROUP\tAT\tREASON\tMESSAGE", t.groups)
	for _, uid := range t.failed {
		if r := t.failures[uid]; r != nil {
			delete(t.failures, uid)
			r.write(out)
		}
	}
	fmt.Fprintf(out, "%d scheduled, %d unschedulable, %d gated, %d waiting, %d preempted, %d evicted\n",
		s.Scheduled, s.Unschedulable, s.Gated, s.Waiting, s.Preempted, s.Evicted)
	return out.Flush()
}

// columns writes a table and an empty line; nothing without rows.
func columns(out io.Writer, head string, rows []string) {
	if len(rows) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, head)
	for _, row := range rows {
		fmt.Fprintln(table, row)
	}
	table.Flush()
	fmt.Fprintln(out)
}

func (r *failure) write(out io.Writer) {
	fmt.Fprintln(out, r.title)
	if r.message != "" {
		fmt.Fprintf(out, "  %s\n", r.message)
	}
	var lines []string
	for _, group := range r.nodes {
		for row := range group.rows.All() {
			lines = append(lines, fmt.Sprintf("  %s\t%s\t%s", r.table.Node(row).Name.Value(), group.plugin, group.reason))
		}
	}
	slices.Sort(lines)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(table, line)
	}
	table.Flush()
	fmt.Fprintln(out)
}
