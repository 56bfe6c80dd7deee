package framework

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Enabled is a plugin with its score weight; 0: 1.
type Enabled struct {
	Plugin Plugin
	Weight int64
}

// Plan has the plugins of each extension point in order.
type Plan [Points][]Enabled

// Runner runs the plugins of a profile.
type Runner struct {
	profile     string
	preEnqueue  []named[PreEnqueuer]
	sorter      named[Sorter]
	preFilters  []named[PreFilterer]
	filters     []named[Filterer]
	late        int // index of the first LateFilterer; they are last
	postFilters []named[PostFilterer]
	preScorers  []named[PreScorer]
	scorers     []named[Scorer]
	reservers   []named[Reserver]
	permitters  []named[Permitter]
	preBinders  []named[PreBinder]
	binders     []named[BindPlugin]
	postBinders []named[PostBinder]
	feasible    []named[PlacementFeasibler]
	groupPosts  []named[PodGroupPostFilterer]
	hints       map[string][]EventHint
	hooks       CycleHooks // of the out-of-tree plugins; nil: there are none
	everyReason bool
}

type named[T any] struct {
	name   string
	plugin T
	weight int64
	// partner is the index of the plugin's Filter, for a PreFilter, or of its Score,
	// for a PreScore; -1: none.
	partner int
}

// New makes the runner of a profile. The error joins the plugins that do not
// implement a point of the plan.
func New(profile string, plan *Plan, options ...Option) (*Runner, error) {
	r := &Runner{profile: profile, hints: map[string][]EventHint{Bounds: boundsHints}}
	for _, option := range options {
		option(r)
	}
	var sorters []named[Sorter]
	err := errors.Join(
		fill(&r.preEnqueue, plan, PreEnqueue), fill(&sorters, plan, QueueSort), fill(&r.preFilters, plan, PreFilter),
		fill(&r.filters, plan, Filter), fill(&r.postFilters, plan, PostFilter), fill(&r.preScorers, plan, PreScore),
		fill(&r.scorers, plan, Score), fill(&r.reservers, plan, Reserve), fill(&r.permitters, plan, Permit),
		fill(&r.preBinders, plan, PreBind), fill(&r.binders, plan, Bind), fill(&r.postBinders, plan, PostBind),
	)
	if len(sorters) != 1 {
		err = errors.Join(err, fmt.Errorf("profile %s: %d plugins sort the queue, not one", profile, len(sorters)))
	}
	if len(r.binders) == 0 {
		err = errors.Join(err, fmt.Errorf("profile %s: no plugin binds", profile))
	}
	if err != nil {
		return nil, err
	}
	r.sorter = sorters[0]
	slices.SortStableFunc(r.filters, func(a, b named[Filterer]) int { return rank(a.plugin) - rank(b.plugin) })
	r.late = slices.IndexFunc(r.filters, func(f named[Filterer]) bool { return rank(f.plugin) > 0 })
	if r.late < 0 {
		r.late = len(r.filters)
	}
	pair(r.preFilters, r.filters)
	pair(r.preScorers, r.scorers)
	seen := map[string]bool{}
	for _, enabled := range plan {
		for _, e := range enabled {
			name := e.Plugin.Name()
			if seen[name] {
				continue
			}
			seen[name] = true
			if p, ok := e.Plugin.(PlacementFeasibler); ok {
				r.feasible = append(r.feasible, named[PlacementFeasibler]{name: name, plugin: p})
			}
			if p, ok := e.Plugin.(PodGroupPostFilterer); ok {
				r.groupPosts = append(r.groupPosts, named[PodGroupPostFilterer]{name: name, plugin: p})
			}
			if h, ok := e.Plugin.(Hinter); ok {
				r.hints[e.Plugin.Name()] = h.Events()
			}
			if g, ok := e.Plugin.(Adapter); ok {
				r.hooks = g.Hooks()
			}
		}
	}
	return r, nil
}

func fill[T any](into *[]named[T], plan *Plan, point Point) error {
	var faults []error
	for _, e := range plan[point] {
		p, ok := e.Plugin.(T)
		if !ok || !Extends(e.Plugin, point) {
			faults = append(faults, fmt.Errorf("plugin %s does not implement %s", e.Plugin.Name(), point))
			continue
		}
		*into = append(*into, named[T]{name: e.Plugin.Name(), plugin: p, weight: cmp.Or(e.Weight, 1)})
	}
	return errors.Join(faults...)
}

// rank is 1 for late filters, which are last.
func rank(f Filterer) int {
	if _, late := f.(LateFilterer); late {
		return 1
	}
	return 0
}

func pair[T, U any](list []named[T], partners []named[U]) {
	for i := range list {
		list[i].partner = slices.IndexFunc(partners, func(p named[U]) bool { return p.name == list[i].name })
	}
}

// Profile is the scheduler name.
func (r *Runner) Profile() string { return r.profile }

// Hints are the registered queueing hints by plugin.
func (r *Runner) Hints() map[string][]EventHint { return r.hints }

// Sorter is the name of the QueueSort plugin.
func (r *Runner) Sorter() string { return r.sorter.name }

// Less orders the active queue.
func (r *Runner) Less(a, b Queued) bool { return r.sorter.plugin.Less(a, b) }

// ScorePlugins are the names of the score plugins, by the index for Cycle.ScoreOf.
func (r *Runner) ScorePlugins() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := range r.scorers {
			if !yield(i, r.scorers[i].name) {
				return
			}
		}
	}
}

// FilterPlugins are the names of the filters, sorted.
func (r *Runner) FilterPlugins() []string {
	names := make([]string, len(r.filters))
	for i := range r.filters {
		names[i] = r.filters[i].name
	}
	slices.Sort(names)
	return names
}

// PreEnqueue runs the PreEnqueue plugins until one rejects the pod.
func (r *Runner) PreEnqueue(pod *nodetable.Pod) Status {
	for _, p := range r.preEnqueue {
		if s := p.plugin.PreEnqueue(pod); !s.OK() {
			return p.withPlugin(s)
		}
	}
	return Status{}
}

func (p *named[T]) withPlugin(s Status) Status {
	s.Plugin = p.name
	return s
}

// failed is withPlugin that adds what kube-scheduler adds to the error of a plugin, and not to
// that of an extender: the plugin and the extension point.
func (p *named[T]) failed(s Status, format string) Status {
	_, extender := any(p.plugin).(LateFilterer)
	if s.Err != nil && !extender {
		s.Err = fmt.Errorf(format+": %w", p.name, s.Err)
	}
	return p.withPlugin(s)
}

// Scores reports whether more than one feasible node is needed: a plugin scores, or
// a late filter runs.
func (r *Runner) Scores() bool { return len(r.scorers) > 0 || r.late < len(r.filters) }

// Reserve runs the Reserve plugins. If one fails, Unreserve runs for all.
func (r *Runner) Reserve(a Assignment) Status {
	for _, p := range r.reservers {
		if a.WhatIf && isOutOfTree(p.plugin) {
			continue
		}
		if s := p.plugin.Reserve(a); !s.OK() {
			r.Unreserve(a)
			return p.failed(s, "running Reserve plugin %q")
		}
	}
	return Status{}
}

// Unreserve runs in reverse order.
func (r *Runner) Unreserve(a Assignment) {
	for _, p := range slices.Backward(r.reservers) {
		if !a.WhatIf || !isOutOfTree(p.plugin) {
			p.plugin.Unreserve(a)
		}
	}
}

func isOutOfTree(plugin any) bool {
	_, adapter := plugin.(Adapter)
	return adapter
}

// NotInWhatIf lists the out-of-tree plugins that have an extension point which does not run
// in a what-if, sorted.
func (r *Runner) NotInWhatIf() (names []string) {
	add := func(name string, plugin any) {
		if isOutOfTree(plugin) {
			names = append(names, name)
		}
	}
	for _, p := range r.postFilters {
		add(p.name, p.plugin)
	}
	for _, p := range r.reservers {
		add(p.name, p.plugin)
	}
	for _, p := range r.permitters {
		add(p.name, p.plugin)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// MaxPermitWait bounds the timeout of a Permit plugin.
const MaxPermitWait = 15 * time.Minute

// Permit runs the Permit plugins. With the code Wait, waits has the timeout by
// plugin.
func (r *Runner) Permit(a Assignment) (waits map[string]time.Duration, s Status) {
	for _, p := range r.permitters {
		s, timeout := p.plugin.Permit(a)
		switch {
		case s.Code == Wait:
			if waits == nil {
				waits = map[string]time.Duration{}
			}
			waits[p.name] = min(timeout, MaxPermitWait)
		case !s.OK():
			return nil, p.failed(s, "running Permit plugin %q")
		}
	}
	if waits != nil {
		return waits, Status{Code: Wait}
	}
	return nil, Status{}
}
