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
	// Preparing says whether victims of a pod are still being told to go, so that
	// it is not to be tried yet. Nil where nobody is told behind the scheduler.
	Preparing func(types.UID) bool
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

// PostFilterer makes room where the pod fits nowhere.
type PostFilterer interface {
	PostFilter(c *Cycle) (Nomination, Status)
}

// Nomination is the node that PostFilter chose for a pod, empty for none; it
// counts where Decided, and otherwise leaves the pod's nomination as it was.
type Nomination struct {
	Node    *nodetable.Node
	Decided bool
	// Victims that have to go, most important first.
	Victims []*nodetable.Pod
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

// Extends says whether a plugin implements an extension point.
func Extends(p Plugin, point Point) bool {
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
