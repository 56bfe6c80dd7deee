package framework

import (
	"context"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// MaxScore is the highest score of a node, before its plugin's weight; the
// lowest is 0.
const MaxScore = 100

// Point is an extension point.
type Point uint8

// The extension points, in the order in which a pod meets them, and their number.
const (
	PreEnqueue Point = iota
	QueueSort
	PreFilter
	Filter
	PostFilter
	PreScore
	Score
	Reserve
	Permit
	PreBind
	Bind
	PostBind
	Points
)

var pointNames = [Points]string{
	"preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "bind", "postBind",
}

// String is the point's field in KubeSchedulerConfiguration.
func (p Point) String() string { return pointNames[p] }

// Plugin implements one or more of the interfaces below.
type Plugin interface{ Name() string }

// Env is what plugins are made with.
type Env struct {
	Table *nodetable.Table
	// Binder binds pods where there is an API.
	Binder Binder
	// Budgets are the disruption budgets, with their status as of now.
	Budgets func() []*policyv1.PodDisruptionBudget
	// Preempting says whether victims of a pod are still being told to go, so that
	// it is not to be tried yet. Nil where nobody is told behind the scheduler.
	Preempting func(types.UID) bool
	// PausedNodes are the nodes where a pod is not to preempt now; nil for none ever.
	PausedNodes func(pod *nodetable.Pod) []nodetable.Symbol
	// Preemptors are asked in order before a candidate is picked.
	Preemptors []Preemptor
	// Random is where a choice among equals comes from.
	Random Random
}

// Random breaks ties: a number from 0 to n-1.
type Random interface{ IntN(n int) int }

// Binder tells the API server that a pod has a node.
type Binder interface {
	Bind(ctx context.Context, pod *nodetable.Pod, node *nodetable.Node) error
}

// Factory makes a plugin. Its arguments are of the plugin's type in
// k8s.io/kube-scheduler/config/v1, or nil where it takes none.
type Factory func(args any, env Env) (Plugin, error)

// Queued is a pod in the queue.
type Queued struct {
	Pod *nodetable.Pod
	// Timestamp is when it was queued, or tried last.
	Timestamp time.Time
	*History
}

// History is what the queue knows of a pod's attempts. It is for reading.
type History struct {
	FirstAttempt time.Time // when it was first popped; zero before
	Attempts     int       // times popped
	Unsuccessful int       // attempts that plugins rejected; backoff grows with them
	Errors       int       // attempts that failed with nobody rejecting the pod, since the last that somebody did

	Backoff                time.Time // end of the backoff, a whole second; zero without
	Unschedulable, Pending []string  // who rejected it; nil after a pop or an error
	Gate                   Status    // why it is gated, while it is
}

// PreEnqueuer keeps pods out of the active queue.
type PreEnqueuer interface {
	PreEnqueue(pod *nodetable.Pod) Status
}

// Sorter orders the queue.
type Sorter interface{ Less(a, b Queued) bool }

// PreFilterer looks at a pod once, before the nodes. It may skip its Filter,
// narrow the set with Cycle.Narrow, or reject the pod for all nodes.
type PreFilterer interface{ PreFilter(c *Cycle) Status }

// Filterer takes out of Cycle.Feasible the nodes where the pod does not fit, with
// Cycle.Reject or RejectAll. It reads the table as it is now, for it is called
// again for single nodes where pods were added or removed to see what if. Only
// the code Error is of consequence.
type Filterer interface {
	Filter(c *Cycle) Status
	// Reasons are the texts of a rejection's reasons.
	Reasons(pod *nodetable.Pod, reasons uint32) []string
}

// LateFilterer is a Filterer that is asked about the sampled nodes only, after all
// others, and never what if: whoever asks a service outside.
type LateFilterer interface {
	Filterer
	FiltersLate()
}

// PostFilterer makes room where the pod fits nowhere.
type PostFilterer interface {
	PostFilter(c *Cycle) (Nomination, Status)
}

// Candidate is a node where a pod fits once the victims are gone.
type Candidate struct {
	Row nodetable.Row
	// Victims are one or more, the most important first.
	Victims []*nodetable.Pod
	// Violations are the victims that a disruption budget protects.
	Violations int
}

// Preemptor has a say in who is preempted: it takes out candidates and may name
// other victims on those that stay.
type Preemptor interface {
	Preempt(c *Cycle, candidates []Candidate) ([]Candidate, error)
}

// Nomination is the node that PostFilter chose for a pod, empty for none; it
// counts where Decided, and otherwise leaves the pod's nomination as it was.
type Nomination struct {
	Node    *nodetable.Node
	Decided bool
	// Victims that have to go, most important first.
	Victims []*nodetable.Pod
	// Violations are the victims that a disruption budget protects.
	Violations int
}

// PreScorer prepares scoring the nodes of Cycle.Rows, or skips it.
type PreScorer interface{ PreScore(c *Cycle) Status }

// Scorer fills the score of each row, in the order of rows.
type Scorer interface {
	Score(c *Cycle, rows []nodetable.Row, scores []int64) Status
}

// Normalizer brings its Scorer's scores into 0..MaxScore.
type Normalizer interface {
	Normalize(c *Cycle, rows []nodetable.Row, scores []int64) Status
}

// Assignment is a pod with the node chosen for it.
type Assignment struct {
	Pod  *nodetable.Pod
	Node *nodetable.Node
	// State is the cycle's.
	State any
}

// Reserver is told that a pod has a node, and that it has not after all.
// Unreserve is called also where its own Reserve failed or was not reached.
type Reserver interface {
	Reserve(a Assignment) Status
	Unreserve(a Assignment)
}

// Permitter approves, denies, or lets a pod wait, at most for the time given.
type Permitter interface {
	Permit(a Assignment) (Status, time.Duration)
}

// PreBinder does what has to be done before binding.
type PreBinder interface {
	PreBind(ctx context.Context, a Assignment) Status
}

// PreFlighter is a PreBinder that knows beforehand whether it has anything to do.
type PreFlighter interface {
	PreBinder
	PreBindPreFlight(a Assignment) bool
}

// BindPlugin binds, or skips so that the next one does.
type BindPlugin interface {
	Bind(ctx context.Context, a Assignment) Status
}

// PostBinder is told that a pod is bound.
type PostBinder interface {
	PostBind(ctx context.Context, a Assignment)
}

// Hinter says which events may let the pods fit that it has rejected.
type Hinter interface{ Events() []EventHint }

// Adapter is a plugin that was written against another framework: its CycleHooks stands
// between. It extends fewer points than it has methods for.
type Adapter interface {
	Plugin
	Extends(point Point) bool
	Hooks() CycleHooks
}

// CycleHooks is what the guests of a profile share.
type CycleHooks interface {
	// Begin comes before a cycle's first PreFilter.
	Begin(c *Cycle)
	// BeforePreBind comes before the first PreBind of a binding; the context is for
	// all of them.
	BeforePreBind(ctx context.Context, a Assignment) (context.Context, Status)
	// AfterPreBind comes after the last one, with how they ended, and has the last
	// word on that.
	AfterPreBind(ctx context.Context, a Assignment, s Status) Status
}

// Extends says whether a plugin implements an extension point.
func Extends(p Plugin, point Point) bool {
	if g, ok := p.(Adapter); ok && !g.Extends(point) {
		return false
	}
	return [Points]func(Plugin) bool{
		PreEnqueue: is[PreEnqueuer],
		QueueSort:  is[Sorter],
		PreFilter:  is[PreFilterer],
		Filter:     is[Filterer],
		PostFilter: is[PostFilterer],
		PreScore:   is[PreScorer],
		Score:      is[Scorer],
		Reserve:    is[Reserver],
		Permit:     is[Permitter],
		PreBind:    is[PreBinder],
		Bind:       is[BindPlugin],
		PostBind:   is[PostBinder],
	}[point](p)
}

func is[T any](p Plugin) bool {
	_, ok := p.(T)
	return ok
}
