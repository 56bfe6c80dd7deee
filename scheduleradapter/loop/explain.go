package loop

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// PendingPod is a pod that has no node, and why.
type PendingPod struct {
	Pod   string    `json:"pod"` // namespace/name
	Place string    `json:"place"`
	Since time.Time `json:"since"` // it came
	// Attempts to find it a node, and until when it waits for the next, left out
	// where it waits for an event.
	Attempts int       `json:"attempts"`
	Backoff  time.Time `json:"backoff,omitzero"`
	// Rejectors are the plugins that rejected it last, and Gate is what holds it back
	// before any attempt.
	Rejectors []string `json:"rejectors,omitempty"`
	Gate      string   `json:"gate,omitempty"`
	Nominated string   `json:"nominated,omitempty"`
	// Message is what its condition PodScheduled says.
	Message string `json:"message,omitempty"`
}

// Explanation is how the nodes would do for a pod that was tried now.
type Explanation struct {
	Pod  string `json:"pod"`
	Node string `json:"node,omitempty"` // where it is; for the rest it is taken away from there
	// Waiting is nil where the pod has a node.
	Waiting  *PendingPod `json:"waiting,omitempty"`
	Nodes    int         `json:"nodes"`
	Feasible int         `json:"feasible"`
	// Refusal is why no node was looked at.
	Refusal string `json:"refusal,omitempty"`
	// Refused groups the other nodes by what rejected them first, the largest group
	// first.
	Refused []Refused `json:"refused"`
	// Nearest are refused nodes that lack least: with the fewest reasons.
	Nearest []Near `json:"nearest"`
	// Best are feasible nodes, the highest score first.
	Best []Scored `json:"best"`
}

// Refused are nodes that one plugin rejects for the same reasons.
type Refused struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	// Resolvable says that preempting pods may help.
	Resolvable bool     `json:"resolvable"`
	Count      int      `json:"count"`
	Nodes      []string `json:"nodes"`
}

// Near is a node and all that would have to change for it to fit.
type Near struct {
	Node    string      `json:"node"`
	Reasons []string    `json:"reasons"`
	Short   []Shortfall `json:"short,omitempty"`
	// Taints are key=value:effect of those that the pod does not tolerate.
	Taints []string `json:"taints,omitempty"`
}

// Shortfall is how much more of a resource a node would have to have free.
type Shortfall struct {
	Resource string `json:"resource"`
	Lacks    string `json:"lacks"`
	Free     string `json:"free"`
	lacks    float64
}

// Scored is a feasible node and what each plugin gave it, weighted.
type Scored struct {
	Node   string           `json:"node"`
	Total  int64            `json:"total"`
	Scores map[string]int64 `json:"scores"`
}

// What an explanation shows: nodes that fit, nodes that nearly do, and how many of
// the refused are asked for every reason, for that takes the loop's time.
const (
	shownNodes  = 5
	probedNodes = 256
)

// Pending lists the pods of the queue in the order in which they came, at most so
// many; 0 for all.
func (c *Core) Pending(most int) []PendingPod {
	entries := c.Queue.Entries()
	if most > 0 {
		entries = entries[:min(len(entries), most)]
	}
	all := make([]PendingPod, len(entries))
	for i, e := range entries {
		all[i] = c.pending(e)
	}
	return all
}

func (c *Core) pending(e *queue.Entry) PendingPod {
	w := PendingPod{
		Pod: e.Pod.String(), Place: e.Place().String(), Since: e.Added, Attempts: e.Attempts, Gate: e.Gate.Message(),
		Nominated: c.Promises.Node(e.Pod.UID),
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

// Explain tries a pod, by its namespace/name, name or uid, at every node and moves
// nothing. It says whether there is such a pod of these profiles.
func (c *Core) Explain(now time.Time, name string) (x Explanation, found bool) {
	pod := c.find(name)
	if pod == nil {
		return x, false
	}
	x = Explanation{Pod: pod.String(), Nodes: c.Table.Len(), Refused: []Refused{}, Nearest: []Near{}, Best: []Scored{}}
	if e := c.Queue.Get(pod.UID); e != nil {
		x.Waiting = new(c.pending(e))
	}
	if _, row := c.Table.Find(pod.UID); row != nodetable.NoRow {
		x.Node = c.Table.Node(row).Name.Value()
		c.Table.Displace(pod.UID)
		defer c.Table.Place(pod, row)
	}
	cycle, status := c.Scheduler.Explain(pod, now)
	if refusal := cycle.Refusal(); !refusal.OK() {
		x.Refusal = refusal.Message()
		return x, true
	}
	if status.Code == framework.Error {
		x.Refusal = status.Message()
		return x, true
	}
	x.Feasible = cycle.Feasible.Count()
	x.refuse(cycle)
	x.score(cycle)
	return x, true
}

// find looks for a pod in the queue, and then on the nodes.
func (c *Core) find(name string) *nodetable.Pod {
	is := func(p *nodetable.Pod) bool {
		namespace, rest, _ := strings.Cut(name, "/")
		return p.Object.Name == name || string(p.UID) == name || p.Object.Name == rest && p.Object.Namespace == namespace
	}
	if e := c.Queue.Find(is); e != nil {
		return e.Pod
	}
	for _, p := range c.Table.AllPods() {
		if is(p) && c.Ours(p) {
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
		x.Refused = append(x.Refused, Refused{Reasons: []string{"left out by another plugin's choice of nodes"}, Count: absent, Nodes: []string{}})
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

// near lists all that keeps the pod off a node.
func near(c *framework.Cycle, row nodetable.Row) Near {
	n := Near{Node: c.Table.Node(row).Name.Value(), Short: shortfalls(c, row)}
	for _, t := range c.Pod.Tolerations.Untolerated(c.Table.Node(row).Taints) {
		n.Taints = append(n.Taints, (&v1.Taint{Key: t.Key.Value(), Value: t.Value.Value(), Effect: t.Effect}).ToString())
	}
	all, _ := c.EveryRejection(row)
	for _, why := range all {
		_, reasons := c.Explain(why)
		n.Reasons = append(n.Reasons, reasons...)
	}
	if len(all) == 0 { // promised to others, or a service outside objects
		why, _ := c.Rejected(row)
		_, n.Reasons = c.Explain(why)
	}
	return n
}

// lacks is the largest shortfall as a part of what was asked for.
func (n *Near) lacks() (most float64) {
	for _, s := range n.Short {
		most = max(most, s.lacks)
	}
	return most
}

func shortfalls(c *framework.Cycle, row nodetable.Row) (all []Shortfall) {
	t, r := c.Table, &c.Pod.Requests
	short := func(name string, column *nodetable.Column, request, scale int64, format resource.Format) {
		var free int64
		if column != nil {
			free = column.Allocatable[row] - column.Requested[row]
		}
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
