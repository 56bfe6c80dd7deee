package framework

import (
	"context"
	"iter"
	"math/bits"
	"slices"
	"time"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Cycle is the state of a scheduling cycle. It is reused, so that attempts do not
// allocate.
type Cycle struct {
	Table *nodetable.Table
	Pod   *nodetable.Pod
	// Now is set before Begin, by the clock of API objects.
	Now time.Time
	// Work is the context of all attempts; nil: it does not end.
	Work context.Context
	// Suspends is set before Begin: Await does not block.
	Suspends bool
	// WhatIf is set before Begin: all effects are undone, so that PostFilter of out-of-tree
	// plugins does not run.
	WhatIf bool
	// Feasible are the nodes that no filter has rejected. Filters change it with
	// Reject and its variants only.
	Feasible nodetable.Bits
	// Evaluated are the nodes on which the filters ran.
	Evaluated nodetable.Bits
	// Rows are the feasible nodes to score, Totals their weighted scores.
	Rows   []nodetable.Row
	Totals []int64
	// State is that of the out-of-tree plugins; nil: there are none.
	State  any
	Timing Timing

	requests        *requests // of the attempt; nil: there are none
	joint           bool      // see BeginPodGroup
	runner          *Runner
	rejections      []Rejection        // by row; valid if evaluated and not feasible
	running         int16              // index of the running filter
	names           []nodetable.Symbol // result of PreFilter plugins, if isNarrowed
	isNarrowed      bool
	narrows         bool           // set by Narrow in the running PreFilter
	candidates      nodetable.Bits // nodes to evaluate
	skipFilter      []bool
	skipScore       []bool
	scores          [][]int64 // by score plugin and index in Rows
	nominations     nominations
	sumFilter       int // see findSumFilter
	single          nodetable.Bits
	start, enough   int                           // of Filter
	left            nodetable.Bits                // see LeaveOut
	narrowing       []string                      // PreFilter plugins that called Narrow, sorted
	further         map[nodetable.Row][]Rejection // see Further
	explained       map[Rejection]explanation     // of a clone; nil: plugins have the reasons
	preFilterStatus Status                        // of PreFilter
	rowPlugins      rowPlugins
}

// Rejection is a filter that rejected a node, with its reasons.
type Rejection struct {
	filter       int16
	Unresolvable bool
	Pending      bool // the plugin returned the code Pending
	reasons      uint32
}

// Reject rejects a node in the running filter. The plugin defines the reasons.
// unresolvable: preemption does not help.
func (c *Cycle) Reject(row nodetable.Row, reasons uint32, unresolvable bool) {
	c.Feasible.Clear(row)
	c.rejections[row] = Rejection{filter: c.running, Unresolvable: unresolvable, reasons: reasons}
}

// RejectPending rejects a node with the code Pending.
func (c *Cycle) RejectPending(row nodetable.Row, reasons uint32) {
	c.Feasible.Clear(row)
	c.rejections[row] = Rejection{filter: c.running, Unresolvable: true, Pending: true, reasons: reasons}
}

// RejectAll rejects those of the rows that are feasible.
func (c *Cycle) RejectAll(rows nodetable.Bits, reasons uint32, unresolvable bool) {
	for i, w := range rows[:len(c.Feasible)] {
		c.RejectWord(i, w, reasons, unresolvable)
	}
}

// RejectWord rejects those rows of one word of a set that are feasible.
func (c *Cycle) RejectWord(word int, rows uint64, reasons uint32, unresolvable bool) {
	rows &= c.Feasible[word]
	c.Feasible[word] &^= rows
	for ; rows != 0; rows &= rows - 1 {
		c.rejections[word<<6+bits.TrailingZeros64(rows)] = Rejection{filter: c.running, Unresolvable: unresolvable, reasons: reasons}
	}
}

// Search yields rows in the order of the search, and the number of feasible nodes that
// suffices.
func (c *Cycle) Search() (rows iter.Seq[nodetable.Row], enough int) {
	return func(yield func(nodetable.Row) bool) {
		order := c.Table.Order()
		for i := range order {
			if !yield(order[(c.start+i)%len(order)]) {
				return
			}
		}
	}, c.enough
}

// Omit leaves a feasible node out in a late filter: an extender was not asked about it.
func (c *Cycle) Omit(row nodetable.Row) {
	c.Feasible.Clear(row)
	c.Evaluated.Clear(row)
}

// LeaveOut leaves a feasible node out of the search: enough other nodes are feasible
// before it. If further filters reject all of these, the filters run again, and
// Search says that no number suffices.
func (c *Cycle) LeaveOut(row nodetable.Row) {
	c.Feasible.Clear(row)
	c.left.Set(row)
}

// Narrow limits the nodes to evaluate, like a PreFilterResult. Several limits are
// intersected.
func (c *Cycle) Narrow(names []nodetable.Symbol) {
	if !c.isNarrowed {
		c.names = append(c.names[:0], names...)
	} else {
		c.names = slices.DeleteFunc(c.names, func(name nodetable.Symbol) bool { return !slices.Contains(names, name) })
	}
	c.isNarrowed, c.narrows = true, true
}

// Runner is that of the pod's profile.
func (c *Cycle) Runner() *Runner { return c.runner }

// Candidates is the number of nodes to evaluate.
func (c *Cycle) Candidates() int { return c.candidates.Count() }

// Rejected is why a node is not feasible; false: it is feasible or not evaluated.
func (c *Cycle) Rejected(row nodetable.Row) (r Rejection, ok bool) {
	return c.rejections[row], c.Evaluated.Has(row) && !c.Feasible.Has(row)
}

// Resolvable stores the nodes on which preemption may help in a set.
func (c *Cycle) Resolvable(into nodetable.Bits) nodetable.Bits {
	if c.preFilterStatus.Code == Unschedulable {
		return into.Copied(c.Table.Alive())
	}
	into = into.Copied(c.Evaluated)
	into.AndNot(c.Feasible)
	for row := range into.All() {
		if c.rejections[row].Unresolvable {
			into.Clear(row)
		}
	}
	return into
}

// PreFilterStatus is the rejection of the pod by PreFilter, or Success.
func (c *Cycle) PreFilterStatus() Status { return c.preFilterStatus }

// Narrowing are the plugins that called Narrow, sorted.
func (c *Cycle) Narrowing() []string { return c.narrowing }

// Rejectors are the plugins that rejected nodes, sorted, each once; pending are
// those that returned Pending. A plugin may be in both.
func (c *Cycle) Rejectors() (names, pending []string) {
	if c.preFilterStatus.Code.Rejected() {
		names = append(slices.Clone(c.narrowing), c.preFilterStatus.Plugin)
		slices.Sort(names)
		return slices.Compact(names), nil
	}
	names = slices.Clone(c.narrowing)
	for _, k := range c.kinds() {
		if name := c.runner.filters[k.filter].name; k.Pending {
			pending = append(pending, name)
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Sort(pending)
	return slices.Compact(names), slices.Compact(pending)
}

// rejectionKind is a rejection with the number of its nodes.
type rejectionKind struct {
	Rejection
	nodes int
}

// kinds are the distinct rejections, in the order of their first nodes.
func (c *Cycle) kinds() []rejectionKind {
	var kinds []rejectionKind
	at := -1
	for word, rows := range c.Evaluated {
		for rows &^= c.Feasible[word]; rows != 0; rows &= rows - 1 {
			r := c.rejections[word<<6+bits.TrailingZeros64(rows)]
			if at < 0 || kinds[at].Rejection != r { // adjacent nodes often have the same rejection
				at = slices.IndexFunc(kinds, func(k rejectionKind) bool { return k.Rejection == r })
				if at < 0 {
					at = len(kinds)
					kinds = append(kinds, rejectionKind{Rejection: r})
				}
			}
			kinds[at].nodes++
		}
	}
	return kinds
}

// explanation is a result of Explain.
type explanation struct {
	plugin  string
	reasons []string
}

// Explain returns the plugin and the reasons of a rejection.
func (c *Cycle) Explain(r Rejection) (plugin string, reasons []string) {
	if known, is := c.explained[r]; is {
		return known.plugin, known.reasons
	}
	f := c.runner.filters[r.filter]
	return f.name, f.plugin.Reasons(c.Pod, r.reasons)
}

// Details explain a rejection of a row beyond its reasons; nil: nothing more is known.
func (c *Cycle) Details(r Rejection, row nodetable.Row) []string {
	if p, ok := c.runner.filters[r.filter].plugin.(Detailer); ok {
		return p.Details(c, row)
	}
	return nil
}

// ScoreOf is the normalized and weighted score of Rows[i] by a plugin; false: the
// plugin did not run.
func (c *Cycle) ScoreOf(plugin, i int) (score int64, ok bool) {
	if len(c.Totals) == 0 || c.skipScore[plugin] {
		return 0, false
	}
	return c.scores[plugin][i] * c.runner.scorers[plugin].weight, true
}

// Fits runs the filters for a node on the current table, first with the nominated
// pods of the same or higher priority, then without. why is valid if the pod does
// not fit and the status is no error.
func (c *Cycle) Fits(row nodetable.Row) (fits bool, why Rejection, s Status) {
	if fits, why, s = c.fitsAmongNominated(row); !fits {
		return false, why, s
	}
	why, fits, s = c.probe(row)
	return fits, why, s
}

// FitsAlone runs the filters for a node without the nominated pods.
func (c *Cycle) FitsAlone(row nodetable.Row) (fits bool, why Rejection, s Status) {
	why, fits, s = c.probe(row)
	return fits, why, s
}

// ForNodes is a cycle for the same pod over other nodes that passed the filters. It
// does not change c, but plugins keep state of the last call.
func (c *Cycle) ForNodes(feasible nodetable.Bits) *Cycle {
	b := *c
	b.Feasible, b.Rows, b.Totals, b.scores, b.single = feasible, nil, nil, nil, nil
	b.Timing = Timing{}
	b.skipScore = make([]bool, len(c.skipScore))
	return &b
}

// probe runs the filters for one node and restores the cycle.
func (c *Cycle) probe(row nodetable.Row) (Rejection, bool, Status) {
	return c.runFilters(row, 0, c.runner.late)
}

// runFilters is probe with a range of the filters.
func (c *Cycle) runFilters(row nodetable.Row, begin, end int) (Rejection, bool, Status) {
	feasible, was, running, measured := c.Feasible, c.rejections[row], c.running, c.Timing.Plugins
	c.Timing.Plugins = false
	single := c.single.Emptied(c.Table.Rows())
	single.Set(row)
	c.Feasible, c.single = single, nil // a filter may call probe
	status := c.runner.filterBy(c, begin, end)
	rejection, fits := c.rejections[row], status.OK() && single.Has(row)
	c.Feasible, c.rejections[row], c.running, c.single = feasible, was, running, single
	c.Timing.Plugins = measured
	return rejection, fits, status
}
