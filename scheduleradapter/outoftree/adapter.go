package outoftree

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// adapter is an out-of-tree plugin as a framework.Adapter.
type adapter struct {
	profile *profile
	name    string
	plugin  fwk.Plugin
	events  []framework.EventHint
	ran     bool // PreFilter ran in this cycle
	// texts are the distinct reasons of this cycle; known has their indexes.
	texts [][]string
	known map[string]uint32
}

func (g *adapter) Name() string                  { return g.name }
func (g *adapter) Hooks() framework.CycleHooks   { return g.profile }
func (g *adapter) Events() []framework.EventHint { return g.events }

// Extends reports whether the plugin implements a point.
func (g *adapter) Extends(point framework.Point) bool {
	return [framework.Points]func(fwk.Plugin) bool{
		framework.PreEnqueue: is[fwk.PreEnqueuePlugin],
		framework.QueueSort:  is[fwk.QueueSortPlugin],
		framework.PreFilter:  is[fwk.PreFilterPlugin],
		framework.Filter:     is[fwk.FilterPlugin],
		framework.PostFilter: is[fwk.PostFilterPlugin],
		framework.PreScore:   is[fwk.PreScorePlugin],
		framework.Score:      is[fwk.ScorePlugin],
		framework.Reserve:    is[fwk.ReservePlugin],
		framework.Permit:     is[fwk.PermitPlugin],
		framework.PreBind:    is[fwk.PreBindPlugin],
		framework.Bind:       is[fwk.BindPlugin],
		framework.PostBind:   is[fwk.PostBindPlugin],
	}[point](g.plugin)
}

func is[T any](p fwk.Plugin) bool {
	_, ok := p.(T)
	return ok
}

// call calls the plugin on the owner's goroutine.
func (g *adapter) call(point framework.Point, f func() *fwk.Status) (s *fwk.Status) {
	g.profile.host.enter()
	defer g.profile.host.leave()
	defer g.profile.host.guard(g.name, point, &s)
	return f()
}

// PreEnqueue gates the pod unless the plugin returns Success.
func (g *adapter) PreEnqueue(pod *nodetable.Pod) framework.Status {
	s := g.call(framework.PreEnqueue, func() *fwk.Status {
		return g.plugin.(fwk.PreEnqueuePlugin).PreEnqueue(g.profile.host.ctx, pod.Object)
	})
	return status(g.name, framework.PreEnqueue, s, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable, fwk.Pending, fwk.Wait, fwk.Skip)
}

func (g *adapter) Less(a, b framework.Queued) (less bool) {
	g.call(framework.QueueSort, func() *fwk.Status {
		less = g.plugin.(fwk.QueueSortPlugin).Less(queued{a}, queued{b})
		return nil
	})
	return less
}

func (g *adapter) PreFilter(c *framework.Cycle) framework.Status {
	state := c.State.(*cycleState)
	var result *fwk.PreFilterResult
	s := g.call(framework.PreFilter, func() (s *fwk.Status) {
		result, s = g.plugin.(fwk.PreFilterPlugin).PreFilter(g.profile.attempt(), state, c.Pod.Object, g.profile.host.follower.latest.list)
		return s
	})
	g.ran = true
	switch {
	case s.IsSkip():
		state.skip(&state.noFilter, g.name)
	case s.IsSuccess() && !result.AllNodes():
		names := make([]nodetable.Symbol, 0, len(result.NodeNames))
		for _, name := range sets.List(result.NodeNames) {
			names = append(names, nodetable.Intern(name))
		}
		c.Narrow(names)
	}
	return status(g.name, framework.PreFilter, s, fwk.Skip, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable)
}

func (g *adapter) extend(plugin fwk.PreFilterPlugin, state fwk.CycleState, pod *nodetable.Pod, info fwk.PodInfo, node fwk.NodeInfo, added bool) *fwk.Status {
	return g.call(framework.PreFilter, func() *fwk.Status {
		extensions := plugin.PreFilterExtensions()
		switch {
		case extensions == nil:
			return nil
		case added:
			return extensions.AddPod(g.profile.attempt(), state, pod.Object, info, node)
		}
		return extensions.RemovePod(g.profile.attempt(), state, pod.Object, info, node)
	})
}

// Filter calls the plugin for all feasible nodes, concurrently.
func (g *adapter) Filter(c *framework.Cycle) framework.Status {
	if s := g.profile.sight(c); !s.OK() {
		return s
	}
	rows, state := c.Feasible.Append(nil), g.profile.state()
	nodes := g.profile.nodes(rows)
	answers := make([]*fwk.Status, len(rows))
	plugin, ctx := g.plugin.(fwk.FilterPlugin), g.profile.attempt()
	g.each(framework.Filter, answers, func(i int) *fwk.Status {
		return plugin.Filter(ctx, state, c.Pod.Object, nodes[i])
	})
	for i, row := range rows {
		switch s := answers[i]; s.Code() {
		case fwk.Success:
		case fwk.Pending:
			c.RejectPending(row, g.reason(s))
		case fwk.Unschedulable, fwk.UnschedulableAndUnresolvable:
			c.Reject(row, g.reason(s), s.Code() == fwk.UnschedulableAndUnresolvable)
		default:
			return status(g.name, framework.Filter, s)
		}
	}
	return framework.Status{}
}

// each calls a function for each index, concurrently.
func (g *adapter) each(point framework.Point, answers []*fwk.Status, f func(i int) *fwk.Status) {
	h := g.profile.host
	h.enter()
	defer h.leave()
	for i := range answers {
		answers[i] = fwk.AsStatus(errEnding)
	}
	one := func(i int) {
		defer h.guard(g.name, point, &answers[i])
		answers[i] = f(i)
	}
	h.until(h.ctx, len(answers), one)
}

// reason is the index of a status' reasons, for Reasons.
func (g *adapter) reason(s *fwk.Status) uint32 {
	key := strings.Join(s.Reasons(), "\x00")
	number, known := g.known[key]
	if !known {
		number = uint32(len(g.texts))
		g.known[key] = number
		g.texts = append(g.texts, s.Reasons())
	}
	return number
}

func (g *adapter) Reasons(_ *nodetable.Pod, number uint32) []string { return g.texts[number] }

// PostFilter may nominate a node.
func (g *adapter) PostFilter(c *framework.Cycle) (framework.Nomination, framework.Status) {
	var result *fwk.PostFilterResult
	nodeStatuses := nodeStatusesOf(c)
	s := g.call(framework.PostFilter, func() (s *fwk.Status) {
		result, s = g.plugin.(fwk.PostFilterPlugin).PostFilter(g.profile.attempt(), c.State.(*cycleState), c.Pod.Object, nodeStatuses)
		return s
	})
	answer := status(g.name, framework.PostFilter, s, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable, fwk.Pending)
	if answer.Code == framework.Error || result == nil || result.Mode() == fwk.ModeNoop {
		return framework.Nomination{}, answer
	}
	nomination := framework.Nomination{Decided: true}
	if name := result.NominatedNodeName; name != "" {
		row := c.Table.Row(nodetable.Intern(name))
		if row == nodetable.NoRow {
			return framework.Nomination{}, framework.AsStatus(fmt.Errorf("plugin %q nominates node %q, which does not exist", g.name, name))
		}
		nomination.Node = c.Table.Node(row)
	}
	return nomination, answer
}

func (g *adapter) PreScore(c *framework.Cycle) framework.Status {
	if s := g.profile.sight(c); !s.OK() {
		return s
	}
	g.profile.scoring = true
	state := c.State.(fwk.CycleState)
	s := g.call(framework.PreScore, func() *fwk.Status {
		return g.plugin.(fwk.PreScorePlugin).PreScore(g.profile.attempt(), state, c.Pod.Object, g.profile.nodes(c.Rows))
	})
	if s.IsSkip() {
		state.SetSkipScorePlugins(state.GetSkipScorePlugins().Union(sets.New(g.name)))
	}
	return status(g.name, framework.PreScore, s, fwk.Skip)
}

// Score calls the plugin for all nodes, concurrently.
func (g *adapter) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	if s := g.profile.sight(c); !s.OK() {
		return s
	}
	g.profile.scoring = true
	state, nodes := c.State.(fwk.CycleState), g.profile.nodes(rows)
	answers := make([]*fwk.Status, len(rows))
	plugin, ctx := g.plugin.(fwk.ScorePlugin), g.profile.attempt()
	g.each(framework.Score, answers, func(i int) (s *fwk.Status) {
		scores[i], s = plugin.Score(ctx, state, c.Pod.Object, nodes[i])
		return s
	})
	for _, s := range answers {
		if !s.IsSuccess() {
			return status(g.name, framework.Score, s)
		}
	}
	return framework.Status{}
}

// Normalize calls the plugin's ScoreExtensions.
func (g *adapter) Normalize(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	list := make(fwk.NodeScoreList, len(rows))
	for i, row := range rows {
		list[i] = fwk.NodeScore{Name: c.Table.Node(row).Name.Value(), Score: scores[i]}
	}
	s := g.call(framework.Score, func() *fwk.Status {
		extensions := g.plugin.(fwk.ScorePlugin).ScoreExtensions()
		if extensions == nil {
			return nil
		}
		return extensions.NormalizeScore(g.profile.attempt(), c.State.(fwk.CycleState), c.Pod.Object, list)
	})
	for i := range list {
		scores[i] = list[i].Score
	}
	return status(g.name, framework.Score, s)
}

// assigned calls the plugin for an assumed pod, on the owner's goroutine.
func (g *adapter) assigned(point framework.Point, a framework.Assignment, f func(state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status) *fwk.Status {
	return g.call(point, func() *fwk.Status { return f(a.State.(fwk.CycleState), a.Pod.Object, a.Node.Name.Value()) })
}

func (g *adapter) Reserve(a framework.Assignment) framework.Status {
	s := g.assigned(framework.Reserve, a, func(state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
		return g.plugin.(fwk.ReservePlugin).Reserve(g.profile.attempt(), state, pod, node)
	})
	return status(g.name, framework.Reserve, s, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable, fwk.Pending)
}

func (g *adapter) Unreserve(a framework.Assignment) {
	g.assigned(framework.Reserve, a, func(state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
		g.plugin.(fwk.ReservePlugin).Unreserve(g.profile.host.ctx, state, pod, node)
		return nil
	})
}

func (g *adapter) Permit(a framework.Assignment) (framework.Status, time.Duration) {
	var longest time.Duration
	s := g.assigned(framework.Permit, a, func(state fwk.CycleState, pod *v1.Pod, node string) (s *fwk.Status) {
		s, longest = g.plugin.(fwk.PermitPlugin).Permit(g.profile.attempt(), state, pod, node)
		return s
	})
	return status(g.name, framework.Permit, s, fwk.Wait, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable, fwk.Pending), longest
}

// nodes are the rows in the topmost view.
func (p *profile) nodes(rows []nodetable.Row) []fwk.NodeInfo {
	nodes := make([]fwk.NodeInfo, len(rows))
	for i, row := range rows {
		nodes[i] = p.node(row)
	}
	return nodes
}
