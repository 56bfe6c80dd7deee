package framework

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Bounds is the name under which a pod that exceeds a bound of package nodetable is
// rejected.
const Bounds = "Bounds"

// boundsHints are: the share of the pod's namespace shrinks with the deletion of a pod.
var boundsHints = []EventHint{{
	Event: Event{Resource: AssignedPod, Action: Delete},
	Hint: func(o *Occurrence, pod *nodetable.Pod) (Hint, error) {
		if o.OldPod == nil || o.OldPod.Namespace != pod.Namespace || pod.Refused != "" {
			return QueueSkip, nil
		}
		return Queue, nil
	},
}}

// GangScheduling is the plugin of pod groups.
const GangScheduling = "GangScheduling"

// Begin starts a cycle and runs PreFilter; a rejection is for all nodes. nominated
// yields all nominated pods; nil: there are none.
func (r *Runner) Begin(c *Cycle, table *nodetable.Table, pod *nodetable.Pod, nominated iter.Seq2[*nodetable.Pod, nodetable.Symbol]) Status {
	c.Table, c.Pod, c.runner = table, pod, r
	if !c.joint {
		c.beginRun()
	}
	c.candidates = c.candidates.Copied(table.Alive())
	c.Evaluated = c.Evaluated.Emptied(table.Rows())
	c.Feasible = c.Feasible.Emptied(table.Rows())
	c.Rows, c.Totals = c.Rows[:0], c.Totals[:0]
	c.Timing.Spans = c.Timing.Spans[:0]
	c.isNarrowed, c.narrowing, c.preFilterStatus = false, c.narrowing[:0], Status{}
	if n := table.Rows(); len(c.rejections) < n {
		c.rejections = make([]Rejection, n)
	}
	c.skipFilter = sized(c.skipFilter, len(r.filters))
	c.skipScore = sized(c.skipScore, len(r.scorers))
	if clear(c.further); r.everyReason && c.further == nil {
		c.further = map[nodetable.Row][]Rejection{}
	}
	c.nominate(nominated)
	if c.State = nil; r.hooks != nil {
		r.hooks.Begin(c)
	}
	begin := c.Timing.Begin()
	if why := table.Refuses(pod); why != "" {
		c.preFilterStatus = Status{Code: UnschedulableAndUnresolvable, Plugin: Bounds, Reason: why}
	} else {
		c.preFilterStatus = r.preFilter(c)
	}
	c.Timing.End(PreFilter, c.preFilterStatus.Code, begin)
	c.sumFilter = c.findSumFilter()
	return c.preFilterStatus
}

// sized is a slice of n zero values that reuses the memory of s.
func sized[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// preFilter continues after Unschedulable, because preemption needs the state of
// all plugins; the last such status is returned. Source: kube-scheduler's
// RunPreFilterPlugins.
func (r *Runner) preFilter(c *Cycle) (preFilterStatus Status) {
	for i := range r.preFilters {
		p := &r.preFilters[i]
		c.narrows = false
		begin := c.Timing.beginPlugin()
		s := p.plugin.PreFilter(c)
		c.Timing.endPlugin(PreFilter, p.name, s.Code, begin)
		switch {
		case s.Code == Skip:
			if p.partner >= 0 {
				c.skipFilter[p.partner] = true
			}
		case s.Code == Unschedulable:
			preFilterStatus = p.withPlugin(s)
			continue
		case !s.OK():
			return p.failed(s, "running PreFilter plugin %q")
		}
		if c.narrows {
			c.narrowing = append(c.narrowing, p.name)
			slices.Sort(c.narrowing)
		}
		if c.isNarrowed && len(c.names) == 0 {
			return p.withPlugin(Status{Code: UnschedulableAndUnresolvable, Reason: emptied(c.narrowing)})
		}
	}
	if c.isNarrowed {
		clear(c.candidates)
		for _, name := range c.names {
			if row := c.Table.Row(name); row != nodetable.NoRow {
				c.candidates.Set(row)
			}
		}
	}
	return preFilterStatus
}

// emptied is the reason if PreFilter leaves no node.
func emptied(plugins []string) string {
	if len(plugins) == 1 {
		return "node(s) didn't satisfy plugin " + plugins[0]
	}
	return fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", plugins)
}

// EvaluateNominatedNode runs the filters on the pod's nominated node first.
func (r *Runner) EvaluateNominatedNode(c *Cycle, row nodetable.Row) (fits bool, s Status) {
	if row == nodetable.NoRow || !c.candidates.Has(row) {
		return false, Status{}
	}
	begin := c.Timing.Begin()
	fits, _, s = c.Fits(row)
	c.Timing.End(Filter, s.Code, begin)
	if !fits {
		return false, s
	}
	c.Feasible.Set(row)
	c.Evaluated.Set(row)
	if s = r.filterLate(c); !s.OK() || !c.Feasible.Has(row) {
		c.Feasible.Clear(row)
		c.Evaluated.Clear(row)
		return false, s
	}
	return true, s
}

// Filter finds the feasible nodes: it filters all nodes, then keeps enough feasible
// ones in the table's order from start. visited is the number of nodes of that
// walk.
func (r *Runner) Filter(c *Cycle, start, enough int) (visited int, s Status) {
	begin := c.Timing.Begin()
	visited, s = r.filterAll(c, start, enough)
	c.Timing.End(Filter, s.Code, begin)
	return visited, s
}

func (r *Runner) filterAll(c *Cycle, start, enough int) (visited int, s Status) {
	for c.start, c.enough = start, enough; ; c.enough = math.MaxInt {
		c.Feasible, c.left = c.Feasible.Copied(c.candidates), c.left.Emptied(c.Table.Rows())
		if s := r.filterEarly(c); !s.OK() {
			return 0, s
		}
		if !c.Feasible.Empty() || c.left.Empty() {
			break
		}
	}
	visited = c.sample(start, enough)
	if s = r.filterLate(c); s.OK() && r.everyReason {
		s = r.rejectFurther(c)
	}
	return visited, s
}

// FilterAll runs the filters on all nodes, except the late ones.
func (r *Runner) FilterAll(c *Cycle) Status {
	c.start, c.enough = 0, math.MaxInt
	c.Feasible, c.left = c.Feasible.Copied(c.candidates), c.left.Emptied(c.Table.Rows())
	return r.filterEarly(c)
}

// filterEarly runs the filters beside nominated pods first: a node that they reject there fails
// in no later filter. Sums beside nominated pods follow from those without.
func (r *Runner) filterEarly(c *Cycle) Status {
	if c.sumFilter >= 0 {
		if s := r.filterBy(c, 0, r.late); !s.OK() {
			return s
		}
		return r.filterNominated(c)
	}
	if s := r.filterNominated(c); !s.OK() {
		return s
	}
	return r.filterBy(c, 0, r.late)
}

func (r *Runner) filterLate(c *Cycle) Status { return r.filterBy(c, r.late, len(r.filters)) }

func (r *Runner) filterBy(c *Cycle, first, end int) Status {
	for i := first; i < end && !c.Feasible.Empty(); i++ {
		if c.skipFilter[i] {
			continue
		}
		c.running = int16(i)
		begin := c.Timing.beginPlugin()
		s := r.filters[i].plugin.Filter(c)
		c.Timing.endPlugin(Filter, r.filters[i].name, s.Code, begin)
		if s.Code == Error {
			return r.filters[i].failed(s, "running %q filter plugin")
		}
	}
	return Status{}
}

// sample keeps the first `enough` feasible nodes from start.
func (c *Cycle) sample(start, enough int) (visited int) {
	if c.Feasible.Count() <= enough {
		c.Evaluated = c.Evaluated.Copied(c.candidates)
		c.Evaluated.AndNot(c.left)
		return c.Evaluated.Count()
	}
	order := c.Table.Order()
	found := 0
	for i := 0; found < enough; i++ {
		row := order[(start+i)%len(order)]
		if !c.candidates.Has(row) || c.left.Has(row) {
			continue
		}
		visited++
		c.Evaluated.Set(row)
		if c.Feasible.Has(row) {
			found++
		}
	}
	c.Feasible.And(c.Evaluated)
	return visited
}

// PostFilter runs the PostFilter plugins until one returns Success,
// UnschedulableAndUnresolvable or Error. Otherwise it joins their reasons.
func (r *Runner) PostFilter(c *Cycle) (Nomination, Status) {
	begin := c.Timing.Begin()
	n, s := r.postFilter(c)
	c.Timing.End(PostFilter, s.Code, begin)
	return n, s
}

func (r *Runner) postFilter(c *Cycle) (Nomination, Status) {
	nomination := Nomination{Decided: len(r.postFilters) == 0}
	var reasons []string
	final := Status{Code: Unschedulable}
	for _, p := range r.postFilters {
		if c.WhatIf && isOutOfTree(p.plugin) {
			continue
		}
		begin := c.Timing.beginPlugin()
		n, s := p.plugin.PostFilter(c)
		c.Timing.endPlugin(PostFilter, p.name, s.Code, begin)
		if s.Code == Success || s.Code == UnschedulableAndUnresolvable || s.Code == Error {
			return n, p.withPlugin(s)
		}
		if n.Decided {
			nomination = n
		}
		if s.Reason != "" {
			reasons = append(reasons, s.Reason)
		}
		final.Plugin = p.name
	}
	final.Reason = strings.Join(reasons, ", ")
	return nomination, final
}

// Score runs PreScore and Score on the feasible nodes.
func (r *Runner) Score(c *Cycle) Status {
	if s := r.PreScore(c); !s.OK() {
		return s
	}
	return r.ScoreRows(c)
}

// PreScore fills Cycle.Rows and runs the PreScore plugins.
func (r *Runner) PreScore(c *Cycle) Status {
	begin := c.Timing.Begin()
	s := r.preScore(c)
	c.Timing.End(PreScore, s.Code, begin)
	return s
}

func (r *Runner) preScore(c *Cycle) Status {
	c.Rows = c.Feasible.Append(c.Rows[:0])
	for i := range r.preScorers {
		p := &r.preScorers[i]
		begin := c.Timing.beginPlugin()
		s := p.plugin.PreScore(c)
		c.Timing.endPlugin(PreScore, p.name, s.Code, begin)
		switch {
		case s.Code == Skip:
			if p.partner >= 0 {
				c.skipScore[p.partner] = true
			}
		case !s.OK():
			return p.failed(s, "running PreScore plugin %q")
		}
	}
	return Status{}
}

// ScoreRows fills Cycle.Totals.
func (r *Runner) ScoreRows(c *Cycle) Status {
	begin := c.Timing.Begin()
	s := r.scoreRows(c)
	c.Timing.End(Score, s.Code, begin)
	return s
}

func (r *Runner) scoreRows(c *Cycle) Status {
	n := len(c.Rows)
	c.Totals = sized(c.Totals, n)
	for len(c.scores) < len(r.scorers) {
		c.scores = append(c.scores, nil)
	}
	for i := range r.scorers {
		if c.skipScore[i] {
			continue
		}
		c.scores[i] = slices.Grow(c.scores[i][:0], n)[:n]
		begin := c.Timing.beginPlugin()
		s := score(c, &r.scorers[i], c.scores[i])
		c.Timing.endPlugin(Score, r.scorers[i].name, s.Code, begin)
		if !s.OK() {
			return r.scorers[i].withPlugin(s)
		}
	}
	return Status{}
}

func score(c *Cycle, p *named[Scorer], scores []int64) Status {
	if s := p.plugin.Score(c, c.Rows, scores); !s.OK() {
		return s
	}
	if n, ok := p.plugin.(Normalizer); ok {
		if s := n.Normalize(c, c.Rows, scores); !s.OK() {
			return s
		}
	}
	totals, weight, outside := c.Totals[:len(scores)], p.weight, int64(0)
	for i, score := range scores {
		totals[i] += score * weight
		outside |= score | (MaxScore - score) // negative if either is
	}
	if outside < 0 {
		i := slices.IndexFunc(scores, func(score int64) bool { return score < 0 || score > MaxScore })
		return AsStatus(fmt.Errorf("score %d of node %s is not within 0 to %d", scores[i], c.Table.Node(c.Rows[i]).Name.Value(), MaxScore))
	}
	return Status{}
}
