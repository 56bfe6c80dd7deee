package framework

import (
	"math/bits"
	"slices"
	"time"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Cycle is one attempt to find a node for a pod. It is used again for the next
// one, so that attempts allocate nothing.
type Cycle struct {
	Table *nodetable.Table
	Pod   *nodetable.Pod
	// Now is the time of the attempt, set before it begins.
	Now time.Time
	// Feasible are the nodes not rejected so far. Filters take rows out through
	// Reject and RejectAll only.
	Feasible nodetable.Bits
	// Evaluated are the nodes that were looked at.
	Evaluated nodetable.Bits
	// Rows are the feasible nodes to be scored, Totals their scores.
	Rows   []nodetable.Row
	Totals []int64
	// State is what the profile's CycleHooks keeps for this attempt; nil without one.
	State any
	// Timing of the attempt.
	Timing Timing

	runner          *Runner
	rejections      []Rejection        // by row; holds where evaluated and not feasible
	running         int16              // index of the filter that is running
	names           []nodetable.Symbol // to look at, where narrowed
	isNarrowed      bool
	narrows         bool           // the running PreFilter does
	candidates      nodetable.Bits // to look at
	skipFilter      []bool
	skipScore       []bool
	scores          [][]int64 // by score plugin, by index in Rows
	nominated       []nominee // of others, on nodes of the table, by row
	sumFilter       int       // see findSumFilter
	single          nodetable.Bits
	narrowing       []string                      // plugins that narrowed, sorted
	further         map[nodetable.Row][]Rejection // see Further
	preFilterStatus Status                        // of PreFilter
}

// Rejection is why a node was taken out: which filter, and its reasons.
type Rejection struct {
	filter       int16
	Unresolvable bool
	Pending      bool // it waits for something outside
	reasons      uint32
}

type nominee struct {
	row nodetable.Row
	pod *nodetable.Pod
}

// Reject takes a row out for reasons of the running plugin, which it alone reads.
// Unresolvable: preempting pods there would not help.
func (c *Cycle) Reject(row nodetable.Row, reasons uint32, unresolvable bool) {
	c.Feasible.Clear(row)
	c.rejections[row] = Rejection{filter: c.running, Unresolvable: unresolvable, reasons: reasons}
}

// Await takes a row out, like Reject, where the pod waits for something outside
// the scheduler.
func (c *Cycle) RejectPending(row nodetable.Row, reasons uint32) {
	c.Feasible.Clear(row)
	c.rejections[row] = Rejection{filter: c.running, Unresolvable: true, Pending: true, reasons: reasons}
}

// RejectAll takes out those of the rows that are still in.
func (c *Cycle) RejectAll(rows nodetable.Bits, reasons uint32, unresolvable bool) {
	for i, w := range rows[:len(c.Feasible)] {
		c.RejectWord(i, w, reasons, unresolvable)
	}
}

// RejectWord takes out those rows of one word of a set that are still in.
func (c *Cycle) RejectWord(word int, rows uint64, reasons uint32, unresolvable bool) {
	rows &= c.Feasible[word]
	c.Feasible[word] &^= rows
	for ; rows != 0; rows &= rows - 1 {
		c.rejections[word<<6+bits.TrailingZeros64(rows)] = Rejection{filter: c.running, Unresolvable: unresolvable, reasons: reasons}
	}
}

// Narrow limits the nodes to look at, together with what other plugins say.
func (c *Cycle) Narrow(names []nodetable.Symbol) {
	if !c.isNarrowed {
		c.names = append(c.names[:0], names...)
	} else {
		c.names = slices.DeleteFunc(c.names, func(name nodetable.Symbol) bool { return !slices.Contains(names, name) })
	}
	c.isNarrowed, c.narrows = true, true
}

// Runner is the profile's that the attempt is made with.
func (c *Cycle) Runner() *Runner { return c.runner }

// Candidates is the number of nodes to look at.
func (c *Cycle) Candidates() int { return c.candidates.Count() }

// Rejected tells why a node was taken out; ok is false where it was not.
func (c *Cycle) Rejected(row nodetable.Row) (r Rejection, ok bool) {
	return c.rejections[row], c.Evaluated.Has(row) && !c.Feasible.Has(row)
}

// Resolvable puts into a set the nodes where preempting pods may help: those
// rejected for what other pods do.
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

// PreFilterStatus is why PreFilter rejected the pod for all nodes; success where it did
// not.
func (c *Cycle) PreFilterStatus() Status { return c.preFilterStatus }

// Narrowing are the plugins that limited the nodes to look at, sorted.
func (c *Cycle) Narrowing() []string { return c.narrowing }

// Rejectors are the plugins that kept the pod off nodes, each once: those to be
// asked which events may help. The pending ones wait for something outside; a
// plugin may be both.
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

// rejectionKind is a rejection that so many nodes share.
type rejectionKind struct {
	Rejection
	nodes int
}

// kinds are the distinct rejections, in the order of the first node with each.
func (c *Cycle) kinds() []rejectionKind {
	var kinds []rejectionKind
	at := -1
	for row := range c.Evaluated.All() {
		r, rejected := c.Rejected(row)
		if !rejected {
			continue
		}
		if at < 0 || kinds[at].Rejection != r { // neighbours are often alike
			at = slices.IndexFunc(kinds, func(k rejectionKind) bool { return k.Rejection == r })
			if at < 0 {
				at = len(kinds)
				kinds = append(kinds, rejectionKind{Rejection: r})
			}
		}
		kinds[at].nodes++
	}
	return kinds
}

// Explain names the plugin of a rejection and its reasons.
func (c *Cycle) Explain(r Rejection) (plugin string, reasons []string) {
	f := c.runner.filters[r.filter]
	return f.name, f.plugin.Reasons(c.Pod, r.reasons)
}

// ScoreOf is what a score plugin gave to Rows[i], normalised and weighted; ok is
// false where the plugin did not run.
func (c *Cycle) ScoreOf(plugin, i int) (score int64, ok bool) {
	if len(c.Totals) == 0 || c.skipScore[plugin] {
		return 0, false
	}
	return c.scores[plugin][i] * c.runner.scorers[plugin].weight, true
}

// Fits says whether the pod fits a node as the table is now: with the pods that
// are nominated to it and matter no less, and without them. Where it does not,
// why tells, unless the status is an error.
func (c *Cycle) Fits(row nodetable.Row) (fits bool, why Rejection, s Status) {
	if fits, why, s = c.fitsAmongNominated(row); !fits {
		return false, why, s
	}
	why, fits, s = c.probe(row)
	return fits, why, s
}

// fitsAmongNominated tries the node with the pods nominated to it in place. It is
// true where there are none.
func (c *Cycle) fitsAmongNominated(row nodetable.Row) (bool, Rejection, Status) {
	first, found := slices.BinarySearchFunc(c.nominated, row, func(n nominee, row nodetable.Row) int { return int(n.row - row) })
	if !found {
		return true, Rejection{}, Status{}
	}
	c.Table.Try()
	defer c.Table.Undo()
	for _, n := range c.nominated[first:] {
		if n.row != row {
			break
		}
		c.Table.Place(n.pod, row)
	}
	rejection, fits, status := c.probe(row)
	return fits, rejection, status
}

// FitsAlone says whether the pod fits a node as the table is now, whoever is
// nominated to it.
func (c *Cycle) FitsAlone(row nodetable.Row) (fits bool, why Rejection, s Status) {
	why, fits, s = c.probe(row)
	return fits, why, s
}

// Beside is a cycle for the same pod over other nodes, which have passed the
// filters. What becomes of them does not show in c; but plugins remember the
// latest nodes they were asked about.
func (c *Cycle) ForNodes(feasible nodetable.Bits) *Cycle {
	b := *c
	b.Feasible, b.Rows, b.Totals, b.scores, b.single = feasible, nil, nil, nil, nil
	b.Timing = Timing{}
	b.skipScore = make([]bool, len(c.skipScore))
	return &b
}

// probe runs the filters for one node and leaves no trace in the cycle.
func (c *Cycle) probe(row nodetable.Row) (Rejection, bool, Status) {
	return c.runFilters(row, 0, c.runner.late)
}

// ask is probe with some of the filters.
func (c *Cycle) runFilters(row nodetable.Row, begin, end int) (Rejection, bool, Status) {
	feasible, was, running, measured := c.Feasible, c.rejections[row], c.running, c.Timing.Plugins
	c.Timing.Plugins = false
	single := c.single.Emptied(c.Table.Rows())
	single.Set(row)
	c.Feasible, c.single = single, nil // a filter may probe
	status := c.runner.filterBy(c, begin, end)
	rejection, fits := c.rejections[row], status.OK() && single.Has(row)
	c.Feasible, c.rejections[row], c.running, c.single = feasible, was, running, single
	c.Timing.Plugins = measured
	return rejection, fits, status
}
