package framework

import (
	"context"
	"iter"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// MaxScore is the highest score of a plugin before weighting; the lowest is 0.
const MaxScore = 100

// Point is an extension point.
type Point uint8

// Extension points in the order of a scheduling attempt. Points is their number.
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

// String is the field of the point in KubeSchedulerConfiguration.
func (p Point) String() string { return pointNames[p] }

// Plugin implements one or more of the interfaces below.
type Plugin interface{ Name() string }

// Env is passed to factories.
type Env struct {
	Table *nodetable.Table
	// Binder binds pods; nil without an API server.
	Binder Binder
	// DisruptionsAllowed of a budget of the table; nil: those of its status.
	DisruptionsAllowed func(*policyv1.PodDisruptionBudget) int32
	// Preempting reports whether victims of a pod are being deleted: PreEnqueue gates
	// the pod. nil: victims are deleted synchronously.
	Preempting func(types.UID) bool
	// PausedNodes are the nodes on which a pod must not preempt now; nil: none.
	PausedNodes func(pod *nodetable.Pod) []nodetable.Symbol
	// PodGroups are those of the API server; nil: the gate GenericWorkload is off.
	PodGroups PodGroups
	// Nominations of all pods; nil: there are none.
	Nominations Nominations
	// Preemptors filter candidates in order, before a candidate is selected.
	Preemptors []Preemptor
	// HasDeviceClass reports whether an extended resource has a device class, which
	// DynamicResources then allocates; nil: none has.
	HasDeviceClass func(resource nodetable.Symbol) bool
	// Random breaks ties.
	Random Random
}

// PodGroups are the PodGroups with their pods.
type PodGroups interface {
	// PodGroup finds a PodGroup; nil: there is none.
	PodGroup(key nodetable.PodGroupKey) *schedulingv1beta1.PodGroup
	// PodGroupPods is the number of the pods of a group, with a node or without.
	PodGroupPods(key nodetable.PodGroupKey) int
}

// Nominations are the nominated nodes of pods.
type Nominations interface {
	// Node is the nominated node of a pod; empty: none.
	Node(uid types.UID) string
	// On yields the pods that are nominated to a node.
	On(node nodetable.Symbol) iter.Seq[*nodetable.Pod]
}

// Random returns a number from 0 to n-1.
type Random interface{ IntN(n int) int }

// Binder creates Bindings.
type Binder interface {
	Bind(ctx context.Context, pod *nodetable.Pod, node *nodetable.Node) error
}

// Factory makes a plugin. args has the plugin's type of
// k8s.io/kube-scheduler/config/v1, or is nil.
type Factory func(args any, env Env) (Plugin, error)

// Queued is a pod in the queue.
type Queued struct {
	Pod *nodetable.Pod
	// Timestamp is the arrival in the queue, or the last failure.
	Timestamp time.Time
	*History
}

// History is the queue's record of a pod's attempts. Only the queue changes it.
type History struct {
	FirstAttempt time.Time // first Pop; zero: not popped
	Attempts     int       // number of Pops
	Unsuccessful int       // attempts that plugins rejected
	Errors       int       // consecutive attempts that ended in an error

	Backoff                time.Time // end of the backoff; zero: none
	Unschedulable, Pending []string  // plugins of the last rejection; nil after Pop and after an error
	Gate                   Status    // status of PreEnqueue; Success: not gated
}

// PreEnqueuer gates pods.
type PreEnqueuer interface {
	PreEnqueue(pod *nodetable.Pod) Status
}

// Sorter orders the active queue.
type Sorter interface{ Less(a, b Queued) bool }

// PreFilterer runs before Filter. It may return Skip for its Filter, call
// Cycle.Narrow, or reject the pod.
type PreFilterer interface{ PreFilter(c *Cycle) Status }

// Filterer rejects nodes with Cycle.Reject and its variants. It reads the current
// table: it also runs for single nodes whose pods were changed by preemption. Of
// its codes only Error counts.
type Filterer interface {
	Filter(c *Cycle) Status
	// Reasons are the texts of a rejection's reasons.
	Reasons(pod *nodetable.Pod, reasons uint32) []string
}

// LateFilterer is a Filterer that runs after all others on the sampled nodes, and
// not in preemption: an extender.
type LateFilterer interface {
	Filterer
	FiltersLate()
}

// Detailer is a Filterer that explains a rejection beyond its reasons.
type Detailer interface {
	Filterer
	// Details are about the cycle's pod and a row that the filter rejects.
	Details(c *Cycle, row nodetable.Row) []string
}

// PostFilterer runs if no node is feasible.
type PostFilterer interface {
	PostFilter(c *Cycle) (Nomination, Status)
}

// Candidate is a node that is feasible without the victims.
type Candidate struct {
	Row nodetable.Row
	// Victims are at least one, the most important first.
	Victims []*nodetable.Pod
	// Violations is the number of victims that a disruption budget protects.
	Violations int
}

// Preemptor removes candidates, or changes their victims.
type Preemptor interface {
	Preempt(c *Cycle, candidates []Candidate) ([]Candidate, error)
}

// Nomination is the result of PostFilter. If Decided, Node replaces the nomination
// of the pod; nil clears it.
type Nomination struct {
	Node    *nodetable.Node
	Decided bool
	// Victims to delete, the most important first.
	Victims []*nodetable.Pod
	// Violations is the number of victims that a disruption budget protects.
	Violations int
}

// PlacementFeasibler decides whether a pod group is scheduled while it is tried pod by
// pod: Success, Wait for the remaining pods, or a rejection. scheduled counts the pods
// that have a node, or found one in the attempt.
type PlacementFeasibler interface {
	PlacementFeasible(group *schedulingv1beta1.PodGroup, scheduled, remaining int) Status
}

// PodGroupPostFilterer runs if a pod group is not scheduled.
type PodGroupPostFilterer interface {
	PodGroupPostFilter(g *PodGroupAttempt) (PodGroupNomination, Status)
}

// PodGroupAttempt is an attempt to schedule the pods of a group that have no node.
// Its functions use the table as it is, and leave it unchanged.
type PodGroupAttempt struct {
	Table *nodetable.Table
	Group *schedulingv1beta1.PodGroup
	Pods  []*nodetable.Pod
	// Now is by the clock of API objects.
	Now time.Time
	// Schedule finds nodes for the group.
	Schedule func() ([]Placement, Status)
	// Evaluate runs the filters for a pod on all nodes, without extenders.
	Evaluate func(pod *nodetable.Pod) *Cycle
	// Fits runs the filters for a pod on one node, without extenders.
	Fits func(p Placement) (bool, error)
}

// Placement is a pod with a node that it found.
type Placement struct {
	Pod *nodetable.Pod
	Row nodetable.Row
}

// PodGroupNomination is the result of PodGroupPostFilter: nominated nodes by pod, and
// the victims to delete, the most important first.
type PodGroupNomination struct {
	Nodes      map[types.UID]string
	Victims    []*nodetable.Pod
	Violations int
}

// PreScorer runs before Score, for Cycle.Rows. It may return Skip for its Score.
type PreScorer interface{ PreScore(c *Cycle) Status }

// Scorer fills the score of each row.
type Scorer interface {
	Score(c *Cycle, rows []nodetable.Row, scores []int64) Status
}

// Normalizer maps the scores to 0..MaxScore.
type Normalizer interface {
	Normalize(c *Cycle, rows []nodetable.Row, scores []int64) Status
}

// Assignment is a pod with its selected node.
type Assignment struct {
	Pod  *nodetable.Pod
	Node *nodetable.Node
	// State is that of the cycle.
	State any
	// Retried: Reserve follows in the same attempt, so that Unreserve writes nothing.
	Retried bool
	// WhatIf: Unreserve follows in any case, so that Reserve and Unreserve of out-of-tree
	// plugins do not run.
	WhatIf bool
}

// Reserver is notified of an assumed pod. Unreserve also runs if Reserve failed or
// did not run.
type Reserver interface {
	Reserve(a Assignment) Status
	Unreserve(a Assignment)
}

// Permitter returns Success, a rejection, or Wait with a timeout.
type Permitter interface {
	Permit(a Assignment) (Status, time.Duration)
}

// PreBinder runs before Bind.
type PreBinder interface {
	PreBind(ctx context.Context, a Assignment) Status
}

// PreFlighter is a PreBinder that reports whether its PreBind may take long: it waits
// for a controller or a driver, and not only for answers of the API server.
type PreFlighter interface {
	PreBinder
	PreBindPreFlight(a Assignment) bool
}

// BindPlugin binds the pod, or returns Skip.
type BindPlugin interface {
	Bind(ctx context.Context, a Assignment) Status
}

// PostBinder is notified of a bound pod.
type PostBinder interface {
	PostBind(ctx context.Context, a Assignment)
}

// Hinter registers queueing hints.
type Hinter interface{ Events() []EventHint }

// Adapter is an out-of-tree plugin behind this framework's interfaces. It
// implements only the points for which Extends is true.
type Adapter interface {
	Plugin
	Extends(point Point) bool
	Hooks() CycleHooks
}

// CycleHooks run for all out-of-tree plugins of a profile.
type CycleHooks interface {
	// Begin runs before the first PreFilter.
	Begin(c *Cycle)
	// BeforePreBind runs before the first PreBind and returns the context of all of
	// them.
	BeforePreBind(ctx context.Context, a Assignment) (context.Context, Status)
	// AfterPreBind runs after the last PreBind with their status, which it may
	// replace.
	AfterPreBind(ctx context.Context, a Assignment, s Status) Status
}

// Extends reports whether a plugin implements an extension point.
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

// Registration of a built-in plugin.
type Registration struct {
	Name string
	// Points are the extension points that the plugin implements.
	Points []Point
	New    Factory
}

// Register makes the registration of a plugin type.
func Register[P Plugin](name string, factory Factory) Registration {
	var p P
	r := Registration{Name: name, New: factory}
	for point := range Points {
		if Extends(p, point) {
			r.Points = append(r.Points, point)
		}
	}
	return r
}

func is[T any](p Plugin) bool {
	_, ok := p.(T)
	return ok
}
