// Package cycle is one attempt after the other: find a node for a pod, reserve
// it, ask for permission, bind. Time and chance are arguments, what the API does
// is behind ports.
//
// A Scheduler belongs to the goroutine that owns its table; only Run, or Prepare
// and Commit, of a Binding may be called by others.
package cycle

import (
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Profile is how pods of one scheduler name are scheduled.
type Profile struct {
	*framework.Runner
	// Enough is how many feasible nodes suffice where there are so many nodes.
	Enough func(nodes int) int
}

// Nominations are the nodes promised to pods.
type Nominations interface {
	// All yields every promise, Len of them.
	All() iter.Seq2[*nodetable.Pod, nodetable.Symbol]
	Len() int
	// Node is the name of the node promised to a pod, empty for none.
	Node(uid types.UID) string
}

// Scheduler makes attempts.
type Scheduler struct {
	// Ahead is how far the clock by which objects tell of instants is before that of
	// the attempts: a wall clock may be set.
	Ahead time.Duration

	table       *nodetable.Table
	profiles    map[string]Profile
	nominations Nominations
	random      framework.Random
	start       int // where in the table's order the next sample begins
	attempt     framework.Cycle
	attempts    int
	waiting     map[types.UID]*waiting
}

// New makes a scheduler over a table. Its profiles have distinct names.
func New(table *nodetable.Table, profiles []Profile, nominations Nominations, random framework.Random) *Scheduler {
	s := &Scheduler{table: table, profiles: map[string]Profile{}, nominations: nominations, random: random, waiting: map[types.UID]*waiting{}}
	for _, p := range profiles {
		s.profiles[p.Profile()] = p
	}
	return s
}

// measuredCycles is the share of attempts whose plugins are measured one by one:
// kube-scheduler's 10 %.
const measuredCycles = 10

// Measure has every attempt measured by a clock that tells the time since any
// instant; Cycle.Timing has the result.
func (s *Scheduler) Measure(clock func() time.Duration) { s.attempt.Timing.Clock = clock }

// Result is how an attempt ended.
type Result struct {
	// Status is success, Wait, or why the pod has no node now.
	Status framework.Status
	// Binding is to be run after success.
	Binding Binding
	// Rejectors are the plugins to be asked which events may help a pod that was
	// rejected; those in Pending wait for something outside.
	Rejectors, Pending []string
	// Message is the text for a pod that was rejected or could not be tried.
	Message string
	// Nomination is what making room decided.
	Nomination framework.Nomination
	// Cycle tells of every node and score, until the next attempt.
	Cycle *framework.Cycle
}

// Profile is the profile that a pod asks for; false where it is not one of these.
func (s *Scheduler) Profile(pod *nodetable.Pod) (Profile, bool) {
	p, found := s.profiles[pod.Object.Spec.SchedulerName]
	return p, found
}

// Attempt looks for a node for a pod whose profile is one of the scheduler's.
// With success the pod is on the node in the table, and stays there unless it is
// forgotten.
func (s *Scheduler) Attempt(pod *nodetable.Pod, now time.Time) Result {
	p := s.profiles[pod.Object.Spec.SchedulerName]
	c := &s.attempt
	c.Now = now.Add(s.Ahead)
	c.Timing.Plugins = c.Timing.Clock != nil && s.attempts%measuredCycles == 0
	s.attempts++
	row, status := s.find(p, pod)
	switch {
	case row != nodetable.NoRow:
		r := s.assume(p, framework.Assignment{Pod: pod, Node: s.table.Node(row), State: c.State}, row, now)
		r.Cycle = c
		return r
	case status.Code == framework.Error:
		return Result{Status: status, Message: status.Message(), Cycle: c}
	case s.table.Len() == 0:
		return Result{Status: status, Rejectors: p.FilterPlugins(), Message: framework.NoNodes, Cycle: c} // any node may help
	}
	nomination, made := p.PostFilter(c)
	if made.Code == framework.Error {
		return Result{Status: made, Message: made.Message(), Cycle: c}
	}
	rejectors, pending := c.Rejectors()
	return Result{
		Status: status, Rejectors: rejectors, Pending: pending,
		Message: c.Message(made), Nomination: nomination, Cycle: c,
	}
}

// find chooses a row for a pod; NoRow where there is none, with the status.
func (s *Scheduler) find(p Profile, pod *nodetable.Pod) (nodetable.Row, framework.Status) {
	c := &s.attempt
	var nominated iter.Seq2[*nodetable.Pod, nodetable.Symbol]
	if s.nominations.Len() > 0 {
		nominated = s.nominations.All()
	}
	if status := p.Begin(c, s.table, pod, nominated); !status.OK() {
		return nodetable.NoRow, status
	}
	if name := s.nominations.Node(pod.UID); name != "" {
		row := s.table.Row(nodetable.Intern(name))
		fits, status := p.TryNode(c, row)
		switch {
		case fits:
			return row, status
		case status.Code == framework.Error:
			return nodetable.NoRow, status
		}
	}
	if status := s.filter(p); !status.OK() {
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
	return s.pick(), framework.Status{}
}

func (s *Scheduler) filter(p Profile) framework.Status {
	enough := 1
	if p.Scores() {
		enough = p.Enough(s.attempt.Candidates())
	}
	visited, status := p.Filter(&s.attempt, s.start, enough)
	if n := s.table.Len(); n > 0 {
		s.start = (s.start + visited) % n
	}
	return status
}

// pick is a row with the highest total, each with the same chance.
func (s *Scheduler) pick() nodetable.Row {
	totals := s.attempt.Totals
	_, best := framework.Extremes(totals)
	ties := 0
	for _, total := range totals {
		if total == best {
			ties++
		}
	}
	nth := s.random.IntN(ties)
	for i, total := range totals {
		if total == best {
			if nth == 0 {
				return s.attempt.Rows[i]
			}
			nth--
		}
	}
	return nodetable.NoRow
}

// assume puts the pod on the node and asks the plugins whether it may stay.
func (s *Scheduler) assume(p Profile, a framework.Assignment, row nodetable.Row, now time.Time) Result {
	s.table.Place(a.Pod, row)
	b := Binding{Assignment: a, runner: p.Runner}
	timing := &s.attempt.Timing
	begin := timing.Begin()
	status := p.Reserve(a)
	timing.End(framework.Reserve, status.Code, begin)
	if !status.OK() {
		s.table.Displace(a.Pod.UID)
		return Refused(status)
	}
	begin = timing.Begin()
	waits, status := p.Permit(a)
	timing.End(framework.Permit, status.Code, begin)
	switch {
	case status.Code == framework.Wait:
		s.wait(b, waits, now)
	case !status.OK():
		s.Forget(b)
		return Refused(status)
	}
	return Result{Status: status, Binding: b}
}

// Refused is the result for a pod that a plugin did not let have its node.
func Refused(status framework.Status) Result {
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

// Forget takes back what an attempt has assumed: its binding failed, or the pod
// is gone.
func (s *Scheduler) Forget(b Binding) {
	b.runner.Unreserve(b.Assignment)
	s.table.Displace(b.Pod.UID)
}
