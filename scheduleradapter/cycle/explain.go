package cycle

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// PendingPod describes a pod without a node.
type PendingPod struct {
	Pod   string    `json:"pod"` // namespace/name
	Place string    `json:"place"`
	Since time.Time `json:"since"` // arrival in the queue
	// Attempts counts scheduling attempts. Backoff is the end of the backoff; zero: the
	// pod is not in backoff.
	Attempts int       `json:"attempts"`
	Backoff  time.Time `json:"backoff,omitzero"`
	// Rejectors are the plugins that rejected the pod in its last attempt. Gate is the
	// message of the PreEnqueue plugin that gates it.
	Rejectors []string `json:"rejectors,omitempty"`
	Gate      string   `json:"gate,omitempty"`
	Nominated string   `json:"nominated,omitempty"`
	// Message of the condition PodScheduled.
	Message string `json:"message,omitempty"`
}

// Explanation is the result of filtering and scoring all nodes for a pod.
type Explanation struct {
	Pod  string `json:"pod"`
	Node string `json:"node,omitempty"` // the pod's node; it is evaluated without the pod
	// Waiting is nil if the pod is not in the queue.
	Waiting *PendingPod `json:"waiting,omitempty"`
	// Group is nil if the pod is scheduled without others.
	Group    *GroupExplanation `json:"podGroup,omitempty"`
	Nodes    int               `json:"nodes"`
	Feasible int               `json:"feasible"`
	// Refusal is why no node was evaluated.
	Refusal string `json:"refusal,omitempty"`
	// Refused groups the infeasible nodes by the filter that rejected them first, the
	// largest group first.
	Refused []Refused `json:"refused"`
	// Nearest are the infeasible nodes with the fewest reasons, then the smallest
	// shortfalls.
	Nearest []Near `json:"nearest"`
	// Best are the feasible nodes with the highest scores, the highest first.
	Best []Scored `json:"best"`
}

// GroupExplanation is the state of a pod's PodGroup.
type GroupExplanation struct {
	Name string `json:"name"` // namespace/name
	// MinCount pods get nodes together, or none; 0: each pod that fits gets one.
	MinCount int32 `json:"minCount"`
	Placed   int   `json:"placed"` // pods with a node
	Waiting  int   `json:"waiting"`
	// Message is that of the condition PodGroupInitiallyScheduled while it is False.
	Message string `json:"message,omitempty"`
}

// Refused are nodes that a plugin rejects for the same reasons.
type Refused struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	// Resolvable: preemption may help.
	Resolvable bool     `json:"resolvable"`
	Count      int      `json:"count"`
	Nodes      []string `json:"nodes"`
}

// Near is an infeasible node with all its reasons.
type Near struct {
	Node    string      `json:"node"`
	Reasons []string    `json:"reasons"`
	Short   []Shortfall `json:"short,omitempty"`
	// Details are what plugins add to the reasons.
	Details []string `json:"details,omitempty"`
	// Taints are the untolerated taints as key=value:effect.
	Taints []string `json:"taints,omitempty"`
}

// Shortfall is the amount of a resource that a node lacks for the pod's request.
type Shortfall struct {
	Resource string `json:"resource"`
	Lacks    string `json:"lacks"`
	Free     string `json:"free"`
	lacks    float64
}

// Scored is a feasible node with its weighted score by plugin.
type Scored struct {
	Node   string           `json:"node"`
	Total  int64            `json:"total"`
	Scores map[string]int64 `json:"scores"`
}

// shownNodes bounds Best and Nearest. probedNodes bounds the infeasible nodes for
// which all filters run.
const (
	shownNodes  = 5
	probedNodes = 256
)

// Pending lists at most so many pods of the queue in the order of arrival; 0: all.
func (s *Scheduler) Pending(most int) []PendingPod {
	entries := s.Queue.Entries()
	if most > 0 {
		entries = entries[:min(len(entries), most)]
	}
	all := make([]PendingPod, len(entries))
	for i, e := range entries {
		all[i] = s.pending(e)
	}
	return all
}

func (s *Scheduler) pending(e *queue.Entry) PendingPod {
	w := PendingPod{
		Pod: e.Pod.String(), Place: e.Place().String(), Since: e.Added, Attempts: e.Attempts, Gate: e.Gate.Message(),
		Nominated: s.Nominator.Node(e.Pod.UID),
	}
	if e.Place() == queue.Backoff {
		w.Backoff = e.Backoff
	}
	r := e.Rejection()
	w.Rejectors = slices.Concat(r.Unschedulable, r.Pending)
	for _, condition := range e.Pod.Object.Status.Conditions {
		if condition.Type == v1.PodScheduled {
			w.Message = condition.Message
		}
	}
	return w
}

// Explain filters and scores all nodes for a pod, given by namespace/name, name or
// uid, and changes nothing. found is false if no profile has such a pod.
func (s *Scheduler) Explain(now time.Time, name string) (x Explanation, found bool) {
	return s.explain(&framework.Cycle{Now: now}, name)
}

// Explain is that of the Scheduler for other goroutines. They wait for extenders, until the
// context ends; the loop does not.
func (l *Loop) Explain(ctx context.Context, now time.Time, name string) (x Explanation, found bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the requests
	c := &framework.Cycle{Now: now, Work: ctx, Suspends: true}
	type run struct {
		x        Explanation
		found    bool
		answered func() // nil: the run is the last
	}
	for {
		r, err := Ask(ctx, l, func() (r run) {
			r.x, r.found = l.explain(c, name)
			if answered, suspended := c.Suspended(); suspended {
				r.answered = answered
				c.Resume()
			}
			return r
		})
		if err != nil || r.answered == nil {
			return r.x, r.found, err
		}
		r.answered()
	}
}

func (s *Scheduler) explain(c *framework.Cycle, name string) (x Explanation, found bool) {
	pod := s.find(name)
	if pod == nil {
		return x, false
	}
	x = Explanation{Pod: pod.String(), Nodes: s.Table.Len(), Refused: []Refused{}, Nearest: []Near{}, Best: []Scored{}}
	if e := s.Queue.Get(pod.UID); e != nil {
		x.Waiting = new(s.pending(e))
	}
	x.Group = s.explainGroup(pod)
	if _, row := s.Table.Find(pod.UID); row != nodetable.NoRow {
		x.Node = s.Table.Node(row).Name.Value()
		s.Table.Displace(pod.UID)
		defer s.Table.Place(pod, row)
		pod = UpdatedPod(pod, func(*v1.Pod) {}) // filters read the object
	}
	status := s.tryEveryNode(c, pod)
	if refusal := c.PreFilterStatus(); !refusal.OK() {
		x.Refusal = refusal.Message()
		return x, true
	}
	if status.Code == framework.Error {
		x.Refusal = status.Message()
		return x, true
	}
	x.Feasible = c.Feasible.Count()
	x.refuse(c)
	x.score(c)
	return x, true
}

// explainGroup is the state of the group of a pod; nil: the pod is scheduled without others,
// or its PodGroup does not exist.
func (s *Scheduler) explainGroup(pod *nodetable.Pod) *GroupExplanation {
	name := pod.Object.Spec.SchedulingGroup
	if !s.podGroups || name == nil || name.PodGroupName == nil {
		return nil
	}
	key := nodetable.PodGroupKey{Namespace: pod.Object.Namespace, Name: *name.PodGroupName}
	group := s.PodGroup(key)
	if group == nil {
		return nil
	}
	x := &GroupExplanation{Name: key.String(), Placed: s.Table.PodGroupSize(key)}
	x.Waiting = s.PodGroupPods(key) - x.Placed
	if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
		x.MinCount = gang.MinCount
	}
	if c := meta.FindStatusCondition(group.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled); c != nil && c.Status == metav1.ConditionFalse {
		x.Message = c.Message
	}
	return x
}

// find searches the queue, then the nodes.
func (s *Scheduler) find(name string) *nodetable.Pod {
	is := func(p *nodetable.Pod) bool {
		namespace, rest, _ := strings.Cut(name, "/")
		return p.Name == name || string(p.UID) == name || p.Name == rest && p.Namespace.Value() == namespace
	}
	if e := s.Queue.Find(is); e != nil {
		return e.Pod
	}
	for _, p := range s.Table.AllPods() {
		if is(p) && s.ResponsibleFor(p) {
			return p
		}
	}
	return nil
}

func (x *Explanation) refuse(c *framework.Cycle) {
	groups := map[framework.Rejection]int{}
	probed := 0
	for row := range c.Table.Alive().All() {
		why, rejected := c.Rejected(row)
		if !rejected {
			continue
		}
		at, known := groups[why]
		if !known {
			at, groups[why] = len(x.Refused), len(x.Refused)
			plugin, reasons := c.Explain(why)
			x.Refused = append(x.Refused, Refused{Plugin: plugin, Reasons: reasons, Resolvable: !why.Unresolvable})
		}
		g := &x.Refused[at]
		g.Count++
		g.Nodes = append(g.Nodes, c.Table.Node(row).Name.Value())
		if probed++; probed <= probedNodes {
			x.Nearest = append(x.Nearest, near(c, row))
		}
	}
	if absent := x.Nodes - c.Evaluated.Count(); absent > 0 {
		x.Refused = append(x.Refused, Refused{Reasons: []string{"excluded by the PreFilter result of a plugin"}, Count: absent, Nodes: []string{}})
		for _, plugin := range c.Narrowing() {
			x.Refused[len(x.Refused)-1].Plugin = plugin
		}
	}
	for i := range x.Refused {
		slices.Sort(x.Refused[i].Nodes)
	}
	slices.SortStableFunc(x.Refused, func(a, b Refused) int { return b.Count - a.Count })
	slices.SortFunc(x.Nearest, func(a, b Near) int {
		return cmp.Or(len(a.Reasons)-len(b.Reasons), cmp.Compare(a.lacks(), b.lacks()), cmp.Compare(a.Node, b.Node))
	})
	x.Nearest = x.Nearest[:min(len(x.Nearest), shownNodes)]
}

func near(c *framework.Cycle, row nodetable.Row) Near {
	n := Near{Node: c.Table.Node(row).Name.Value(), Short: shortfalls(c, row)}
	for _, t := range c.Pod.Tolerations.Untolerated(c.Table.Node(row).Taints) {
		n.Taints = append(n.Taints, (&v1.Taint{Key: t.Key.Value(), Value: t.Value.Value(), Effect: t.Effect}).ToString())
	}
	all, _ := c.EveryRejection(row)
	for _, why := range all {
		_, reasons := c.Explain(why)
		n.Reasons = append(n.Reasons, reasons...)
		n.Details = append(n.Details, c.Details(why, row)...)
	}
	if len(all) == 0 { // nominated pods, or an extender
		why, _ := c.Rejected(row)
		_, n.Reasons = c.Explain(why)
	}
	return n
}

// lacks is the largest shortfall as a fraction of the request.
func (n *Near) lacks() (most float64) {
	for _, s := range n.Short {
		most = max(most, s.lacks)
	}
	return most
}

func shortfalls(c *framework.Cycle, row nodetable.Row) (all []Shortfall) {
	t, r := c.Table, &c.Pod.Requests
	short := func(name string, column nodetable.Amounts, request, scale int64, format resource.Format) {
		free := column.Free(row)
		if request <= 0 || request <= free {
			return
		}
		write := func(n int64) string {
			if scale == 1000 {
				return resource.NewMilliQuantity(n, format).String()
			}
			return resource.NewQuantity(n, format).String()
		}
		all = append(all, Shortfall{name, write(request - free), write(max(0, free)), float64(request-free) / float64(request)})
	}
	short("pods", &t.Pods, 1, 1, resource.DecimalSI)
	short("cpu", &t.CPU, r.CPU, 1000, resource.DecimalSI)
	short("memory", &t.Memory, r.Memory, 1, resource.BinarySI)
	short("ephemeral-storage", &t.Ephemeral, r.Ephemeral, 1, resource.BinarySI)
	for _, e := range r.Extended {
		short(e.Name.Value(), t.Extended(e.Name), e.Value, 1, resource.DecimalSI)
	}
	return all
}

func (x *Explanation) score(c *framework.Cycle) {
	best := make([]int, len(c.Rows))
	for i := range best {
		best[i] = i
	}
	slices.SortFunc(best, func(a, b int) int {
		name := func(i int) string { return c.Table.Node(c.Rows[i]).Name.Value() }
		return cmp.Or(cmp.Compare(c.Totals[b], c.Totals[a]), cmp.Compare(name(a), name(b)))
	})
	for _, i := range best[:min(len(best), shownNodes)] {
		s := Scored{Node: c.Table.Node(c.Rows[i]).Name.Value(), Total: c.Totals[i], Scores: map[string]int64{}}
		for plugin, name := range c.Runner().ScorePlugins() {
			if score, ran := c.ScoreOf(plugin, i); ran {
				s.Scores[name] = score
			}
		}
		x.Best = append(x.Best, s)
	}
}
