package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// fakePlugin is a plugin with fixed results.
type fakePlugin struct {
	name       string
	names      []string // for Narrow
	preFilter  Status
	rejects    []string // nodes
	postFilter Status
	nominates  Nomination
	score      int64
	preScore   Status
}

func (a *fakePlugin) Name() string             { return a.name }
func (a *fakePlugin) Less(Queued, Queued) bool { return false }

func (a *fakePlugin) Bind(context.Context, Assignment) Status { return Status{} }

func (a *fakePlugin) PreFilter(c *Cycle) Status {
	if a.names != nil {
		var names []nodetable.Symbol
		for _, name := range a.names {
			if name != "" {
				names = append(names, nodetable.Intern(name))
			}
		}
		c.Narrow(names)
	}
	return a.preFilter
}

func (a *fakePlugin) Filter(c *Cycle) Status {
	for _, name := range a.rejects {
		if row := c.Table.Row(nodetable.Intern(name)); c.Feasible.Has(row) {
			c.Reject(row, 1, a.name == "unresolvable")
		}
	}
	return Status{}
}

func (a *fakePlugin) Reasons(*nodetable.Pod, uint32) []string { return []string{a.name + " rejects"} }

func (a *fakePlugin) PostFilter(*Cycle) (Nomination, Status) { return a.nominates, a.postFilter }

func (a *fakePlugin) PreScore(*Cycle) Status { return a.preScore }

func (a *fakePlugin) Score(_ *Cycle, _ []nodetable.Row, scores []int64) Status {
	for i := range scores {
		scores[i] = a.score
	}
	return Status{}
}

// fixture runs plugins on three nodes.
type fixture struct {
	*testing.T
	*Runner
	table *nodetable.Table
	pod   *nodetable.Pod
	cycle Cycle
}

func newFixture(t *testing.T, points []Point, plugins ...*fakePlugin) *fixture {
	var plan Plan
	for i, a := range plugins {
		for _, point := range points {
			plan[point] = append(plan[point], Enabled{a, int64(i + 1)})
		}
	}
	last := &fakePlugin{name: "last"}
	plan[QueueSort], plan[Bind] = []Enabled{{Plugin: last}}, []Enabled{{Plugin: last}}
	runner, err := New("profile", &plan)
	require.NoError(t, err)
	pod := nodetable.NewPod(&v1.Pod{})
	s := &fixture{T: t, Runner: runner, table: nodetable.New(), pod: pod}
	for i := range 3 {
		s.table.SetNode(nodetable.NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}))
	}
	return s
}

func (s *fixture) filter() Status {
	if status := s.Begin(&s.cycle, s.table, s.pod, nil); !status.OK() {
		return status
	}
	_, status := s.Runner.Filter(&s.cycle, 0, 3)
	return status
}

func names(c *Cycle, rows nodetable.Bits) string {
	var all []string
	for row := range rows.All() {
		all = append(all, c.Table.Node(row).Name.Value())
	}
	return strings.Join(all, " ")
}

var filtering = []Point{PreFilter, Filter}

func TestSkippedPluginDoesNotFilterOrScore(t *testing.T) {
	s := newFixture(t, []Point{PreFilter, Filter, PreScore, Score}, &fakePlugin{name: "one", preFilter: Status{Code: Skip}, preScore: Status{Code: Skip}, rejects: []string{"n0"}, score: 100}, &fakePlugin{name: "two", score: 10})
	s.filter()
	if got := names(&s.cycle, s.cycle.Feasible); got != "n0 n1 n2" {
		t.Errorf("feasible %q", got)
	}
	s.Score(&s.cycle)
	if got := s.cycle.Totals[0]; got != 20 {
		t.Errorf("total %d, want twice the 10 of the plugin of weight 2", got)
	}
	if _, ran := s.cycle.ScoreOf(0, 0); ran {
		t.Error("the skipped plugin has a score")
	}
}

func TestPreFiltersNarrowTogether(t *testing.T) {
	for _, c := range []struct {
		name     string
		one, two []string
		feasible string
		code     Code
		text     string
		by       string
	}{
		{"what both name", []string{"n0", "n1"}, []string{"n1", "n2"}, "n1", Success, "0/3 nodes are available: 2 node(s) didn't satisfy plugin(s) [one two].", "one two"},
		{"one alone", nil, []string{"n2"}, "n2", Success, "0/3 nodes are available: 2 node(s) didn't satisfy plugin(s) [two].", "two"},
		{"nothing in common", []string{"n0"}, []string{"n1"}, "", UnschedulableAndUnresolvable, "0/3 nodes are available: node(s) didn't satisfy plugin(s) [one two] simultaneously.", "one two"},
		{"one names none", []string{""}, nil, "", UnschedulableAndUnresolvable, "0/3 nodes are available: node(s) didn't satisfy plugin one.", "one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFixture(t, filtering, &fakePlugin{name: "one", names: c.one}, &fakePlugin{name: "two", names: c.two})
			if status := s.filter(); status.Code != c.code {
				t.Errorf("status %v", status)
			}
			if got := names(&s.cycle, s.cycle.Feasible); got != c.feasible {
				t.Errorf("feasible %q, want %q", got, c.feasible)
			}
			if got := s.cycle.Message(Status{}); got != c.text {
				t.Errorf("%q, want %q", got, c.text)
			}
			if by, _ := s.cycle.Rejectors(); strings.Join(by, " ") != c.by {
				t.Errorf("rejected by %q, want %q", by, c.by)
			}
		})
	}
}

// rule: S1.11
func TestScoreOutsideItsRangeIsAnError(t *testing.T) {
	for _, score := range []int64{-1, 101} {
		s := newFixture(t, []Point{Score}, &fakePlugin{name: "one", score: score})
		s.filter()
		if status := s.Score(&s.cycle); status.Code != Error || status.Plugin != "one" {
			t.Errorf("score %d: %v", score, status)
		}
	}
}

func TestPostFilterEndsWithTheFirstThatKnows(t *testing.T) {
	node := nodetable.NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}})
	cannot := &fakePlugin{name: "cannot", postFilter: Status{Code: Unschedulable, Reason: "cannot"}}
	can := &fakePlugin{name: "can", nominates: Nomination{Node: node, Decided: true}}
	if n, status := newFixture(t, []Point{PostFilter}, cannot, can).PostFilter(&Cycle{}); n.Node != node || !status.OK() {
		t.Errorf("nomination %v: %v", n, status)
	}
	neither := &fakePlugin{name: "neither", postFilter: Status{Code: Unschedulable, Reason: "neither"}, nominates: Nomination{Decided: true}}
	n, status := newFixture(t, []Point{PostFilter}, cannot, neither).PostFilter(&Cycle{})
	if status.Code != Unschedulable || status.Reason != "cannot, neither" || n.Node != nil || !n.Decided {
		t.Errorf("nomination %v: %v", n, status)
	}
}

func TestPluginAtAPointItDoesNotImplementIsAFault(t *testing.T) {
	var plan Plan
	plan[QueueSort] = []Enabled{{Plugin: &fakePlugin{name: "fakePlugin"}}}
	plan[Bind] = plan[QueueSort]
	plan[Permit], plan[Reserve] = plan[QueueSort], plan[QueueSort]
	_, err := New("profile", &plan)
	if want := "plugin fakePlugin does not implement reserve\nplugin fakePlugin does not implement permit"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := New("profile", &Plan{}); err == nil {
		t.Error("a profile that can neither sort nor bind")
	}
}
