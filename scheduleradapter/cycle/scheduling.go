package cycle

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// Outcome of an attempt, as `simulate -o json` prints it.
type Outcome string

// Outcomes. Gated pods are not attempted.
const (
	Scheduled     Outcome = "scheduled"
	Unschedulable Outcome = "unschedulable"
	Nominated     Outcome = "nominated"
	Gated         Outcome = "gated"
	Waiting       Outcome = "waiting"
	Failed        Outcome = "error"
)

// Attempt to schedule a pod.
type Attempt struct {
	*queue.Entry
	// Pod is the version that was attempted. Number counts attempts from 1; 0: not
	// attempted.
	Pod    *nodetable.Pod
	Number int
	Outcome
	// Node is the node of a scheduled or waiting pod.
	Node string
	// Cycle is that of the attempt, until the next one. Config.KeepsCycles says whether it has
	// the result for each node. nil: no node was evaluated, or Config.KeepsCycles is not set
	// for a pod of a PodGroup.
	Cycle     *framework.Cycle
	Nominated string
	Victims   []*nodetable.Pod
	// Violations is the number of victims that a disruption budget protects.
	Violations int
	Message    string
	// Binding is to be run for a scheduled pod.
	Binding Binding

	waited *waitingPod // nil: the attempt does not end a wait for Permit
}

// ScheduleOne attempts to schedule a popped pod. The caller runs the binding cycle
// of a scheduled pod, and then calls Remove or HandleBindingFailure. All other
// outcomes are complete. With Suspends it returns nil if the attempt is suspended.
func (s *Scheduler) ScheduleOne(now time.Time, e *queue.Entry) *Attempt {
	a := &Attempt{Entry: e, Pod: e.Pod, Number: e.Attempts}
	r := s.SchedulingCycle(e.Pod, now)
	if _, suspended := s.cycle.Suspended(); suspended {
		return nil
	}
	a.Cycle, a.Message = r.Cycle, r.Message
	if s.assumed(now, a, r); a.Outcome == "" {
		s.handleSchedulingFailure(now, a, r)
	}
	return a
}

// assumed ends the scheduling cycle of a pod that Permit allows or delays; the outcome of
// other pods remains empty.
func (s *Scheduler) assumed(now time.Time, a *Attempt, r Result) {
	switch {
	case r.Status.OK():
		s.permitted(a, r.Binding)
		s.clearNomination(now, a, r.Binding.runner.PreBindPreFlight(r.Binding.Assignment))
	case r.Status.Code == framework.Wait:
		a.Outcome, a.Node = Waiting, r.Binding.Node.Name.Value()
		s.waiting[a.Pod.UID].entry = a.Entry
		s.clearNomination(now, a, true)
		s.callbacks.AttemptEnded(a)
	}
}

func (s *Scheduler) permitted(a *Attempt, b Binding) {
	a.Outcome, a.Node, a.Binding = Scheduled, b.Node.Name.Value(), b
	s.Queue.Permit(a.Entry)
}

// pluginMetricsEvery: each tenth attempt is measured by plugin.
// Source: kube-scheduler's pluginMetricsSamplePercent, 10 %.
const pluginMetricsEvery = 10

// Measure measures each attempt by a clock that returns the time since any
// instant. Cycle.Timing has the result.
func (s *Scheduler) Measure(clock func() time.Duration) { s.cycle.Timing.Clock = clock }

// Result of a scheduling cycle.
type Result struct {
	// Status is Success, Wait, or why the pod has no node.
	Status framework.Status
	// Binding is to be run after Success.
	Binding Binding
	// Rejectors are the plugins whose queueing hints decide when a rejected pod is
	// retried. Those in Pending returned the code Pending.
	Rejectors, Pending []string
	// Message is the text for a pod that is unschedulable or whose attempt failed.
	Message string
	// Nomination is the result of PostFilter, or cleared where PostFilter does not run.
	Nomination framework.Nomination
	// Cycle is that of the attempt, until the next one. After Success it has the result for
	// each node only if Config.KeepsCycles is set.
	Cycle *framework.Cycle
}

// cleared clears the nomination of a pod.
var cleared = framework.Nomination{Decided: true}

// SchedulingCycle selects a node for a pod of one of the profiles, without the
// queue. After Success or Wait the pod is assumed on the node in the table until it
// is forgotten. A suspended cycle has no result and leaves no trace.
func (s *Scheduler) SchedulingCycle(pod *nodetable.Pod, now time.Time) Result {
	p := s.profiles[pod.Object.Spec.SchedulerName]
	c := s.cycle
	c.Now, c.Work, c.Suspends = now.Add(s.ClockOffset), s.Work, s.Suspends
	c.Timing.Plugins = c.Timing.Clock != nil && s.attempts%pluginMetricsEvery == 0
	s.attempts++
	start := s.nextStart
	row, status := s.schedulePod(p, pod)
	if _, suspended := c.Suspended(); suspended {
		s.nextStart = start
		return Result{}
	}
	switch {
	case row != nodetable.NoRow:
		r := s.assume(p, framework.Assignment{Pod: pod, Node: s.Table.Node(row), State: c.State}, row, now)
		r.Cycle = c
		return r
	case status.Code == framework.Error:
		return Result{Status: status, Message: status.Message(), Nomination: cleared, Cycle: c}
	case s.Table.Len() == 0:
		return Result{Status: status, Rejectors: p.FilterPlugins(), Message: framework.NoNodes, Nomination: cleared, Cycle: c} // any new node may help
	}
	nomination, post := p.PostFilter(c) // an error is part of the message
	if _, suspended := c.Suspended(); suspended {
		s.nextStart = start
		return Result{}
	}
	rejectors, pending := c.Rejectors()
	return Result{
		Status: status, Rejectors: rejectors, Pending: pending,
		Message: c.Message(post), Nomination: nomination, Cycle: c,
	}
}

// nominatedPods yields the nominated pods, without those of the pod group that is attempted;
// nil: there are none.
func (s *Scheduler) nominatedPods() iter.Seq2[*nodetable.Pod, nodetable.Symbol] {
	switch {
	case s.Nominator.Len() == 0:
		return nil
	case s.attempted == nodetable.PodGroupKey{}:
		return s.Nominator.All()
	}
	return func(yield func(*nodetable.Pod, nodetable.Symbol) bool) {
		for pod, node := range s.Nominator.All() {
			if nodetable.PodGroupOf(pod.Object) != s.attempted && !yield(pod, node) {
				return
			}
		}
	}
}

// schedulePod selects a row for a pod. NoRow: there is none, and the status is why.
func (s *Scheduler) schedulePod(p Profile, pod *nodetable.Pod) (nodetable.Row, framework.Status) {
	c := s.cycle
	if status := p.Begin(c, s.Table, pod, s.nominatedPods()); !status.OK() {
		return nodetable.NoRow, status
	}
	if name := s.Nominator.Node(pod.UID); name != "" {
		row := s.Table.Row(nodetable.Intern(name))
		fits, status := p.EvaluateNominatedNode(c, row)
		switch {
		case fits:
			return row, status
		case status.Code == framework.Error:
			return nodetable.NoRow, status
		}
	}
	enough := 1
	if p.Scores() {
		enough = p.NumFeasibleNodesToFind(c.Candidates())
	}
	if !s.keepsCycles {
		if row, visited := p.SelectRow(c, &s.scores, s.nextStart, enough, s.random); row != nodetable.NoRow {
			s.visited(visited)
			return row, framework.Status{}
		}
	}
	visited, status := p.Filter(c, s.nextStart, enough)
	if s.visited(visited); !status.OK() {
		return nodetable.NoRow, status
	}
	switch c.Feasible.Count() {
	case 0:
		return nodetable.NoRow, framework.Status{Code: framework.Unschedulable}
	case 1:
		for row := range c.Feasible.All() {
			return row, framework.Status{}
		}
	}
	if status := p.Score(c); !status.OK() {
		return nodetable.NoRow, status
	}
	return s.selectHost(), framework.Status{}
}

// visited moves the start of the next sample.
func (s *Scheduler) visited(nodes int) {
	if n := s.Table.Len(); n > 0 {
		s.nextStart = (s.nextStart + nodes) % n
	}
}

// selectHost returns a row with the highest total; each of them has the same
// probability.
func (s *Scheduler) selectHost() nodetable.Row {
	s.tops = s.tops[:0]
	for block := range slices.Chunk(s.cycle.Totals, blockLength) {
		s.tops = append(s.tops, top{total: slices.Max(block)})
	}
	best := slices.MaxFunc(s.tops, func(a, b top) int { return cmp.Compare(a.total, b.total) }).total
	ties, block := 0, 0
	for totals := range slices.Chunk(s.cycle.Totals, blockLength) {
		t := &s.tops[block]
		if block++; t.total == best {
			t.ties = count(totals, best)
			ties += t.ties
		}
	}
	nth := s.random.IntN(ties)
	for block = 0; nth >= s.tops[block].ties; block++ {
		nth -= s.tops[block].ties
	}
	for i := block * blockLength; ; i++ {
		if s.cycle.Totals[i] != best {
			continue
		}
		if nth == 0 {
			return s.cycle.Rows[i]
		}
		nth--
	}
}

// top is the highest total of a block of rows, and, if no other is higher, the number of its rows.
type top struct {
	total int64
	ties  int
}

const blockLength = 64

// count is the number of totals that are equal to one.
func count(totals []int64, one int64) (n int) {
	for _, total := range totals {
		equal := 0 // without a branch
		if total == one {
			equal = 1
		}
		n += equal
	}
	return n
}

// assume places the pod on the node in the table and runs Reserve and Permit.
func (s *Scheduler) assume(p Profile, a framework.Assignment, row nodetable.Row, now time.Time) Result {
	if status := s.reserve(p, a, row); !status.OK() {
		r := rejected(status)
		r.Nomination = cleared
		return r
	}
	return s.permit(p, a, now)
}

// reserve places the pod on the node in the table and runs Reserve. If it fails, the
// pod is displaced.
func (s *Scheduler) reserve(p Profile, a framework.Assignment, row nodetable.Row) framework.Status {
	s.Table.Place(a.Pod, row)
	begin := s.cycle.Timing.Begin()
	status := p.Reserve(a)
	s.cycle.Timing.End(framework.Reserve, status.Code, begin)
	if !status.OK() {
		s.Table.Displace(a.Pod.UID)
	}
	return status
}

// permit runs Permit for an assumed pod.
func (s *Scheduler) permit(p Profile, a framework.Assignment, now time.Time) Result {
	b := Binding{Assignment: a, runner: p.Runner}
	timing := &s.cycle.Timing
	begin := timing.Begin()
	waits, status := p.Permit(a)
	timing.End(framework.Permit, status.Code, begin)
	switch {
	case status.Code == framework.Wait:
		s.addWaitingPod(b, waits, now)
	case !status.OK():
		s.forget(b)
		r := rejected(status)
		r.Nomination = cleared
		return r
	}
	return Result{Status: status, Binding: b}
}

// rejected is the result for a pod that a plugin rejected after a node was
// selected.
func rejected(status framework.Status) Result {
	if !status.Code.Rejected() {
		return Result{Status: status, Message: status.Message()}
	}
	r := Result{Status: status, Message: framework.Histogram{status.Message(): 1}.Message(1)}
	if status.Code == framework.Pending {
		r.Pending = []string{status.Plugin}
	} else {
		r.Rejectors = []string{status.Plugin}
	}
	return r
}

func (s *Scheduler) forget(b Binding) {
	b.runner.Unreserve(b.Assignment)
	s.Table.Displace(b.Pod.UID)
}

// tryEveryNode filters and scores every node for a pod that has no node in the
// table. It runs neither PostFilter nor Reserve, and does not move the start of the
// next sample.
func (s *Scheduler) tryEveryNode(c *framework.Cycle, pod *nodetable.Pod) framework.Status {
	p := s.profiles[pod.Object.Spec.SchedulerName]
	status := p.Begin(c, s.Table, pod, s.nominatedPods())
	if status.OK() {
		_, status = p.Filter(c, 0, c.Candidates()+1)
	}
	switch {
	case !status.OK():
		return status
	case c.Feasible.Empty():
		return framework.Status{Code: framework.Unschedulable}
	}
	return p.Score(c)
}
