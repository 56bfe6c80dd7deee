package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Enabled is a plugin with its weight, which counts where it scores; 0 is 1.
type Enabled struct {
	Plugin Plugin
	Weight int64
}

// Plan is which plugins run at which point, in order.
type Plan [Points][]Enabled

// Runner runs the plugins of one profile.
type Runner struct {
	profile     string
	preEnqueue  []named[PreEnqueuer]
	sorter      Sorter
	preFilters  []named[PreFilterer]
	filters     []named[Filterer]
	postFilters []named[PostFilterer]
	preScorers  []named[PreScorer]
	scorers     []named[Scorer]
	reservers   []named[Reserver]
	permitters  []named[Permitter]
	preBinders  []named[PreBinder]
	binders     []named[BindPlugin]
	postBinders []named[PostBinder]
	hints       map[string][]EventHint
}

type named[T any] struct {
	name   string
	plugin T
	weight int64
	// partner is the index of the same plugin's Filter, of a PreFilter, or of its
	// Score, of a PreScore; -1 where it has none.
	partner int
}

// New makes a profile's runner. The error joins every plugin that does not
// implement a point it is enabled at.
func New(profile string, plan *Plan) (*Runner, error) {
	r := &Runner{profile: profile, hints: map[string][]EventHint{}}
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
	r.sorter = sorters[0].plugin
	pair(r.preFilters, r.filters)
	pair(r.preScorers, r.scorers)
	for _, enabled := range plan {
		for _, e := range enabled {
			if h, ok := e.Plugin.(Hinter); ok {
				r.hints[e.Plugin.Name()] = h.Events()
			}
		}
	}
	return r, nil
}

func fill[T any](into *[]named[T], plan *Plan, point Point) error {
	var faults []error
	for _, e := range plan[point] {
		p, ok := e.Plugin.(T)
		if !ok {
			faults = append(faults, fmt.Errorf("plugin %s does not implement %s", e.Plugin.Name(), point))
			continue
		}
		*into = append(*into, named[T]{name: e.Plugin.Name(), plugin: p, weight: cmp.Or(e.Weight, 1)})
	}
	return errors.Join(faults...)
}

func pair[T, U any](list []named[T], partners []named[U]) {
	for i := range list {
		list[i].partner = slices.IndexFunc(partners, func(p named[U]) bool { return p.name == list[i].name })
	}
}

// Profile is the scheduler name of the pods this is for.
func (r *Runner) Profile() string { return r.profile }

// Hints are the events each plugin asked for, by plugin.
func (r *Runner) Hints() map[string][]EventHint { return r.hints }

// Less orders the queue.
func (r *Runner) Less(a, b Queued) bool { return r.sorter.Less(a, b) }

// ScorePlugins are the names of the score plugins, in the order of
// Cycle.ScoreOf.
func (r *Runner) ScorePlugins() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := range r.scorers {
			if !yield(i, r.scorers[i].name) {
				return
			}
		}
	}
}

// PreEnqueue says whether a pod may enter the active queue; the first plugin that
// objects answers.
func (r *Runner) PreEnqueue(pod *nodetable.Pod) Status {
	for _, p := range r.preEnqueue {
		if s := p.plugin.PreEnqueue(pod); !s.OK() {
			return p.sign(s)
		}
	}
	return Status{}
}

func (p *named[T]) sign(s Status) Status {
	s.Plugin = p.name
	return s
}

// Begin starts a cycle for a pod, and looks at the pod: after a rejection it is
// rejected for all nodes. Nominated yields every pod that was promised a node.
func (r *Runner) Begin(c *Cycle, table *nodetable.Table, pod *nodetable.Pod, nominated iter.Seq2[*nodetable.Pod, nodetable.Symbol]) Status {
	c.Table, c.Pod, c.runner = table, pod, r
	c.candidates = c.candidates.Copied(table.Alive())
	c.Evaluated = c.Evaluated.Emptied(table.Rows())
	c.Feasible = c.Feasible.Emptied(table.Rows())
	c.Rows, c.Totals = c.Rows[:0], c.Totals[:0]
	c.isNarrowed, c.narrowing, c.refusal = false, c.narrowing[:0], Status{}
	if n := table.Rows(); len(c.rejections) < n {
		c.rejections = make([]Rejection, n)
	}
	c.skipFilter = sized(c.skipFilter, len(r.filters))
	c.skipScore = sized(c.skipScore, len(r.scorers))
	c.nominate(nominated)
	c.refusal = r.preFilter(c)
	return c.refusal
}

// sized is a slice of n zero values, in the memory of s where that suffices.
func sized[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// nominate keeps the nominations that a pod must respect.
func (c *Cycle) nominate(nominated iter.Seq2[*nodetable.Pod, nodetable.Symbol]) {
	c.nominated = c.nominated[:0]
	for pod, node := range nominated {
		if row := c.Table.Row(node); row != nodetable.NoRow && pod.UID != c.Pod.UID && pod.Priority >= c.Pod.Priority {
			c.nominated = append(c.nominated, nominee{row, pod})
		}
	}
	slices.SortStableFunc(c.nominated, func(a, b nominee) int { return cmp.Compare(a.row, b.row) })
}

func (r *Runner) preFilter(c *Cycle) Status {
	for i := range r.preFilters {
		p := &r.preFilters[i]
		c.narrows = false
		s := p.plugin.PreFilter(c)
		switch {
		case s.Code == Skip:
			if p.partner >= 0 {
				c.skipFilter[p.partner] = true
			}
		case !s.OK():
			return p.sign(s)
		}
		if c.narrows {
			c.narrowing = append(c.narrowing, p.name)
			slices.Sort(c.narrowing)
		}
		if c.isNarrowed && len(c.names) == 0 {
			return p.sign(Status{Code: UnschedulableAndUnresolvable, Reason: emptied(c.narrowing)})
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
	return Status{}
}

// emptied is why no node is left to look at.
func emptied(plugins []string) string {
	if len(plugins) == 1 {
		return "node(s) didn't satisfy plugin " + plugins[0]
	}
	return fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", plugins)
}

// TryNode looks at one node before all others: the one nominated to the pod.
func (r *Runner) TryNode(c *Cycle, row nodetable.Row) (fits bool, s Status) {
	if !c.candidates.Has(row) {
		return false, Status{}
	}
	if fits, s = c.Fits(row); fits {
		c.Feasible.Set(row)
		c.Evaluated.Set(row)
	}
	return fits, s
}

// Filter finds the feasible nodes: it looks at all, then walks in the table's
// order from start on until enough are found, and forgets the rest. Visited says
// how many nodes that walk has seen.
func (r *Runner) Filter(c *Cycle, start, enough int) (visited int, s Status) {
	c.Feasible = c.Feasible.Copied(c.candidates)
	if s := r.filter(c); !s.OK() {
		return 0, s
	}
	if s := r.filterNominated(c); !s.OK() {
		return 0, s
	}
	return c.sample(start, enough), Status{}
}

func (r *Runner) filter(c *Cycle) Status {
	for i := range r.filters {
		if c.skipFilter[i] {
			continue
		}
		c.running = int16(i)
		if s := r.filters[i].plugin.Filter(c); s.Code == Error {
			return r.filters[i].sign(s)
		}
		if c.Feasible.Empty() {
			break
		}
	}
	return Status{}
}

// filterNominated looks again at the nodes that are promised to other pods.
func (r *Runner) filterNominated(c *Cycle) Status {
	for i, n := range c.nominated {
		if i > 0 && c.nominated[i-1].row == n.row || !c.candidates.Has(n.row) {
			continue
		}
		fits, rejection, s := c.fitsAmongNominated(n.row)
		if s.Code == Error {
			return s
		}
		if !fits {
			c.Feasible.Clear(n.row)
			c.rejections[n.row] = rejection
		}
	}
	return Status{}
}

// sample keeps the first `enough` feasible nodes from start on.
func (c *Cycle) sample(start, enough int) (visited int) {
	if c.Feasible.Count() <= enough {
		c.Evaluated = c.Evaluated.Copied(c.candidates)
		return c.candidates.Count()
	}
	order := c.Table.Order()
	found := 0
	for i := 0; found < enough; i++ {
		row := order[(start+i)%len(order)]
		if !c.candidates.Has(row) {
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

// PostFilter asks the plugins in turn to make room. The first that succeeds, or
// knows that nothing helps, has the last word; else what all of them said is the
// reason.
func (r *Runner) PostFilter(c *Cycle) (Nomination, Status) {
	var nomination Nomination
	var reasons []string
	final := Status{Code: Unschedulable}
	for _, p := range r.postFilters {
		n, s := p.plugin.PostFilter(c)
		if s.Code == Success || s.Code == UnschedulableAndUnresolvable || s.Code == Error {
			return n, p.sign(s)
		}
		if n.Decided {
			nomination = n
		}
		reasons = append(reasons, s.Reason)
		final.Plugin = p.name
	}
	final.Reason = strings.Join(reasons, ", ")
	return nomination, final
}

// Score gives every feasible node its total, into Cycle.Rows and Cycle.Totals.
func (r *Runner) Score(c *Cycle) Status {
	c.Rows = c.Feasible.Append(c.Rows[:0])
	for i := range r.preScorers {
		p := &r.preScorers[i]
		s := p.plugin.PreScore(c)
		switch {
		case s.Code == Skip:
			if p.partner >= 0 {
				c.skipScore[p.partner] = true
			}
		case !s.OK():
			return p.sign(s)
		}
	}
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
		if s := score(c, &r.scorers[i], c.scores[i]); !s.OK() {
			return r.scorers[i].sign(s)
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
	totals := c.Totals[:len(scores)]
	for i, score := range scores {
		if uint64(score) > MaxScore {
			return Failed(fmt.Errorf("score %d of node %s is not within 0 to %d", score, c.Table.Node(c.Rows[i]).Name.Value(), MaxScore))
		}
		totals[i] += score * p.weight
	}
	return Status{}
}

// Scores says whether any plugin scores: without one the first feasible node
// will do.
func (r *Runner) Scores() bool { return len(r.scorers) > 0 }

// Reserve tells the plugins that a pod has a node. Where one fails, all are told
// that it has not.
func (r *Runner) Reserve(a Assignment) Status {
	for _, p := range r.reservers {
		if s := p.plugin.Reserve(a); !s.OK() {
			r.Unreserve(a)
			return p.sign(s)
		}
	}
	return Status{}
}

// Unreserve tells them in reverse order that it has not.
func (r *Runner) Unreserve(a Assignment) {
	for _, p := range slices.Backward(r.reservers) {
		p.plugin.Unreserve(a)
	}
}

// MaxPermitWait is the longest a plugin may let a pod wait.
const MaxPermitWait = 15 * time.Minute

// Permit asks whether a pod may be bound. With the code Wait, waits has for each
// plugin that holds it back how long at most.
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
			return nil, p.sign(s)
		}
	}
	if waits != nil {
		return waits, Status{Code: Wait}
	}
	return nil, Status{}
}

// PreBind does what has to be done before binding, in order.
func (r *Runner) PreBind(ctx context.Context, a Assignment) Status {
	for _, p := range r.preBinders {
		if s := p.plugin.PreBind(ctx, a); !s.OK() {
			return p.sign(s)
		}
	}
	return Status{}
}

// Bind lets the first plugin bind that does not skip.
func (r *Runner) Bind(ctx context.Context, a Assignment) Status {
	for _, p := range r.binders {
		if s := p.plugin.Bind(ctx, a); s.Code != Skip {
			return p.sign(s)
		}
	}
	return Failed(fmt.Errorf("every bind plugin skipped %s", a.Pod))
}

// PostBind tells the plugins that a pod is bound.
func (r *Runner) PostBind(ctx context.Context, a Assignment) {
	for _, p := range r.postBinders {
		p.plugin.PostBind(ctx, a)
	}
}
