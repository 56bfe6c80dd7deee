// Package plugintest runs one plugin on a small cluster, for tests.
package plugintest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Cluster is a table for a test.
type Cluster struct {
	testing.TB
	Table *nodetable.Table
}

// New makes a cluster of nodes.
func New(t testing.TB, nodes ...*v1.Node) *Cluster {
	c := &Cluster{t, nodetable.New()}
	for _, n := range nodes {
		c.Table.SetNode(nodetable.NewNode(n))
	}
	return c
}

// Make makes a plugin.
func (c *Cluster) Make(factory framework.Factory, args any) framework.Plugin {
	c.Helper()
	p, err := factory(args, framework.Env{Table: c.Table})
	if err != nil {
		c.Fatal(err)
	}
	return p
}

// Digest digests a pod.
func (c *Cluster) Digest(p *v1.Pod) *nodetable.Pod {
	c.Helper()
	return nodetable.NewPod(p)
}

// Place places a pod on a node.
func (c *Cluster) Place(p *v1.Pod, node string) {
	c.Helper()
	c.Table.PlaceOn(c.Digest(p), nodetable.Intern(node))
}

// Result has the result of a plugin for a pod and all nodes.
type Result struct {
	// Status of PreFilter, or of another point that failed.
	Status framework.Status
	// Rejected has the reasons by node, joined by ", ", with the prefix "never: " if
	// unresolvable.
	Rejected map[string]string
	// Scores by node, normalized; nil: the plugin skipped the pod.
	Scores map[string]int64
	Cycle  *framework.Cycle
}

// Holds fails the test if the result differs from that of the reference implementation.
func (v Result) Holds(t *testing.T, what string, rejected map[string]string, scores map[string]int64) {
	t.Helper()
	Equal(t, what+": rejected", v.Rejected, rejected)
	Equal(t, what+": scores", v.Scores, scores)
}

// Equal ends the test if two values print differently.
func Equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s: the plugin says %s, the reference %s", what, g, w)
	}
}

// Evaluate runs a plugin at its points up to Score.
func (c *Cluster) Evaluate(p framework.Plugin, pod *nodetable.Pod) Result {
	c.Helper()
	return c.EvaluateAt(p, pod, time.Time{})
}

// EvaluateAt is Evaluate at an instant.
func (c *Cluster) EvaluateAt(p framework.Plugin, pod *nodetable.Pod, now time.Time) Result {
	c.Helper()
	runner, err := framework.New("", plan(p))
	if err != nil {
		c.Fatal(err)
	}
	v := Result{Rejected: map[string]string{}, Cycle: &framework.Cycle{Now: now}}
	if v.Status = runner.Begin(v.Cycle, c.Table, pod, nil); !v.Status.OK() {
		return v
	}
	if _, v.Status = runner.Filter(v.Cycle, 0, c.Table.Len()); !v.Status.OK() {
		return v
	}
	for row := range c.Table.Alive().All() {
		if r, rejected := v.Cycle.Rejected(row); rejected {
			_, reasons := v.Cycle.Explain(r)
			text := strings.Join(reasons, ", ")
			if r.Unresolvable {
				text = "never: " + text
			}
			v.Rejected[c.name(row)] = text
		}
	}
	if v.Cycle.Feasible.Empty() {
		return v
	}
	v.Status = runner.Score(v.Cycle)
	for i, row := range v.Cycle.Rows {
		for plugin := range runner.ScorePlugins() {
			if score, ran := v.Cycle.ScoreOf(plugin, i); ran {
				if v.Scores == nil {
					v.Scores = map[string]int64{}
				}
				v.Scores[c.name(row)] = score
			}
		}
	}
	return v
}

func (c *Cluster) name(row nodetable.Row) string { return c.Table.Node(row).Name.Value() }

// plan enables a plugin at all its points, and the required QueueSort and Bind
// plugins.
func plan(p framework.Plugin) *framework.Plan {
	var plan framework.Plan
	enable := func(point framework.Point, p framework.Plugin, implemented bool) {
		if implemented {
			plan[point] = []framework.Enabled{{Plugin: p}}
		}
	}
	_, ok := p.(framework.PreFilterer)
	enable(framework.PreFilter, p, ok)
	_, ok = p.(framework.Filterer)
	enable(framework.Filter, p, ok)
	_, ok = p.(framework.PreScorer)
	enable(framework.PreScore, p, ok)
	_, ok = p.(framework.Scorer)
	enable(framework.Score, p, ok)
	enable(framework.QueueSort, rest{}, true)
	enable(framework.Bind, rest{}, true)
	return &plan
}

type rest struct{}

func (rest) Name() string                                 { return "rest" }
func (rest) Less(framework.Queued, framework.Queued) bool { return false }

func (rest) Bind(context.Context, framework.Assignment) framework.Status { return framework.Status{} }
