package cycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Bounds of a what-if. The loop attempts a pod and handles events between two runs.
const (
	// MaxWhatIf bounds the pods of a question.
	MaxWhatIf = 10000
	// WhatIfTime bounds the time of an answer.
	WhatIfTime = 4 * time.Second
	// WhatIfRun is how long a run tries further pods. The pods before are placed again in
	// each run, in addition.
	WhatIfRun = 20 * time.Millisecond
)

// Question is whether the pods of workloads, each of one of the profiles, would get
// nodes, one pod after another. There is at least one workload.
type Question []Workload

// Workload is namespace/name, and at least one group of its pods.
type Workload struct {
	Name string
	Pods []Alike
}

// Alike are so many pods like one.
type Alike struct {
	Pod   *v1.Pod
	Count int
}

// About is the question about so many pods like one.
func About(pod *v1.Pod, count int) Question {
	return Question{{pod.Namespace + "/" + pod.Name, []Alike{{pod, count}}}}
}

// WhatIf is the answer to a Question, for its first workload.
type WhatIf struct {
	Pod     string `json:"pod"` // namespace/name of the workload
	Profile string `json:"profile"`
	Count   int    `json:"count"`
	// Scheduled pods fit without an eviction, Nominated ones after the eviction of their
	// victims, or of those of pods before. Untried is for lack of time, or after an error.
	Scheduled     int `json:"scheduled"`
	Nominated     int `json:"nominated"`
	Unschedulable int `json:"unschedulable"`
	Untried       int `json:"untried"`
	// Preempted is the number of all victims, Violations of those that a disruption budget
	// protects.
	Preempted  int `json:"preempted"`
	Violations int `json:"violations"`
	// Nodes are those with pods of the question, by name.
	Nodes []WhatIfNode `json:"nodes"`
	// Pods have a node, in order.
	Pods []WhatIfPod `json:"pods"`
	// Message is that of FailedScheduling for the first pod without a node, or why pods are
	// untried.
	Message string `json:"message"`
	// Filtered are the nodes that do not fit the first unschedulable pod, the largest group
	// first.
	Filtered []Filtered `json:"filtered"`
	// Changed: nodes or their pods changed while the pods were tried, so that the answer
	// holds for none of the states.
	Changed bool `json:"changed"`
	// LeftOut is what the answer does not regard.
	LeftOut []string `json:"leftOut"`
	// Further are the answers for the other workloads, beside the pods of those before.
	Further []WhatIf `json:"further,omitempty"`
}

// WhatIfNode counts the pods of a question on a node.
type WhatIfNode struct {
	Node      string `json:"node"`
	Scheduled int    `json:"scheduled"`
	Nominated int    `json:"nominated"`
}

// WhatIfPod is a pod of a question with a node.
type WhatIfPod struct {
	Pod       int      `json:"pod"` // from 1
	Result    Outcome  `json:"result"`
	Node      string   `json:"node"`
	Nominated string   `json:"nominatedNode"`
	Victims   []string `json:"victims"`
	// Violations is the number of victims that a disruption budget protects.
	Violations int `json:"violations"`
}

// Filtered are nodes that a plugin rejects for the same reasons.
type Filtered struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	// Resolvable: preemption may help.
	Resolvable bool `json:"resolvable"`
	Nodes      int  `json:"nodes"`
}

// trial tries the pods of a question in runs. Each run undoes everything.
type trial struct {
	*Scheduler
	names []string // of the workloads
	parts []*part  // in order

	// of the Scheduler during a run, then kept until the next one
	attempt   *framework.Cycle
	random    framework.Random
	start     int
	disrupted map[types.UID]int32

	check    *framework.Cycle // of pods that are placed without an attempt
	placed   []placement
	serial   int    // of the last pod that was placed
	mark     uint64 // of the table at the end of the last run; 0: none
	versions nodetable.Versions
	changed  bool
}

// part is the trial of pods that are alike.
type part struct {
	Profile
	workload, count int
	pod             *v1.Pod
	digest          *nodetable.Pod // nil: none is tried
	// claims: Reserve uses what the filters found for the pod.
	claims   bool
	placed   int
	ended    ending
	message  string
	filtered []Filtered
}

// ending is why no further pod of a part is tried.
type ending int

const (
	open ending = iota
	noNode
	failed
)

// placement is a pod of a question with its node.
type placement struct {
	part       *part
	pod        *nodetable.Pod
	node       nodetable.Symbol
	victims    []*nodetable.Pod
	violations int
	nominated  bool
	assignment framework.Assignment // of the run; without node: Reserve did not run
}

// WhatIf tries the pods of a question on the cluster as it is now, and changes nothing. It
// waits for extenders.
func (s *Scheduler) WhatIf(now time.Time, q Question) WhatIf {
	t := newTrial(s, s.Work, q)
	t.attempt.Suspends, t.check.Suspends = false, false
	t.run(now, func() bool { return true })
	return t.answer()
}

func newTrial(s *Scheduler, work context.Context, q Question) *trial {
	t := &trial{Scheduler: s, random: s.random.fork(), start: s.nextStart, disrupted: map[types.UID]int32{}}
	for i, w := range q {
		t.names = append(t.names, w.Name)
		for _, pods := range w.Pods {
			t.parts = append(t.parts, &part{Profile: s.profiles[pods.Pod.Spec.SchedulerName], workload: i, count: pods.Count, pod: pods.Pod})
		}
	}
	t.attempt = &framework.Cycle{Work: work, Suspends: true, WhatIf: true}
	t.check = &framework.Cycle{Work: work, Suspends: true, WhatIf: true}
	return t
}

// exchange gives the Scheduler the state of the question, and back.
func (t *trial) exchange() {
	s := t.Scheduler
	s.cycle, t.attempt = t.attempt, s.cycle
	s.random.Random, t.random = t.random, s.random.Random
	s.nextStart, t.start = t.start, s.nextStart
	s.disrupted, t.disrupted = t.disrupted, s.disrupted
}

// run tries pods until all are tried, the attempt is suspended, or more returns false. It
// leaves no trace in the Scheduler.
func (t *trial) run(now time.Time, more func() bool) {
	t.changed = t.changed || t.mark != 0 && (t.mark != t.Table.Mark() || t.versions != t.Table.Versions)
	t.attempt.Now, t.check.Now = now.Add(t.ClockOffset), now.Add(t.ClockOffset)
	t.exchange()
	defer t.exchange()
	t.Table.Try()
	defer t.undo()
	t.placeAgain()
	for p := t.next(); p != nil && t.tryNext(p) && more(); p = t.next() {
	}
}

// next is the part of the next pod; nil: there are none.
func (t *trial) next() *part {
	for _, p := range t.parts {
		if p.ended == open && p.placed < p.count {
			return p
		}
	}
	return nil
}

// done reports whether no further run is needed.
func (t *trial) done() bool { return t.next() == nil }

// undo ends a run.
func (t *trial) undo() {
	for i := range slices.Backward(t.placed) {
		if a := &t.placed[i].assignment; a.Node != nil {
			t.placed[i].part.Unreserve(*a)
			*a = framework.Assignment{}
		}
	}
	t.Table.Undo()
	t.mark, t.versions = t.Table.Mark(), t.Table.Versions
}

// placeAgain places the pods of earlier runs. Those that no longer fit are tried again.
func (t *trial) placeAgain() {
	clear(t.Scheduler.disrupted)
	earlier := t.placed
	t.placed = nil
	for _, p := range t.parts {
		p.placed = 0
	}
	var begun *part
	for _, p := range earlier {
		row := t.Table.Row(p.node)
		if row == nodetable.NoRow {
			continue
		}
		if p.part != begun && !p.part.claims {
			begun = p.part
			_ = begun.Begin(t.check, t.Table, p.pod, t.nominatedPods()) // pods of a part without claims differ in nothing
		}
		if p.victims = t.evict(p.victims); p.part.claims && !t.fits(&p) {
			t.restore(p.victims, row)
			continue
		}
		t.place(p, t.check.State)
	}
}

// tryNext finds a node for the next pod of a part. It returns false if the attempt is
// suspended.
func (t *trial) tryNext(part *part) bool {
	c, start := t.cycle, t.nextStart
	pod := part.newPod(t.serial + 1)
	row, status := t.schedulePod(part.Profile, pod)
	var nomination framework.Nomination
	_, suspended := c.Suspended()
	if !suspended && row == nodetable.NoRow && status.Code != framework.Error && t.Table.Len() > 0 {
		var post framework.Status
		nomination, post = part.PostFilter(c)
		part.message = c.Message(post)
		_, suspended = c.Suspended()
	}
	switch {
	case suspended:
		t.nextStart = start
		return false
	case row != nodetable.NoRow:
		t.serial++
		t.place(placement{part: part, pod: pod, node: t.Table.Node(row).Name, nominated: t.followsEviction()}, c.State)
	case status.Code == framework.Error:
		part.ended, part.message = failed, status.Message()
	case t.Table.Len() == 0:
		part.ended, part.message = noNode, framework.NoNodes
	case nomination.Node == nil:
		part.ended, part.filtered = noNode, filtered(c)
	default:
		t.serial++
		t.evict(nomination.Victims)
		p := placement{part: part, pod: pod, node: nomination.Node.Name, victims: nomination.Victims, violations: nomination.Violations, nominated: true}
		_ = t.fits(&p) // Reserve uses what the filters find without the victims
		t.place(p, t.check.State)
	}
	return true
}

// followsEviction reports whether a pod before has victims.
func (t *trial) followsEviction() bool {
	return len(t.placed) > 0 && t.placed[len(t.placed)-1].nominated
}

// newPod makes a pod of a part.
func (p *part) newPod(serial int) *nodetable.Pod {
	if p.digest == nil {
		p.digest = nodetable.NewPod(p.pod)
		p.claims = p.claims || len(p.digest.Claims) > 0 || len(p.pod.Spec.ResourceClaims) > 0 || len(p.digest.Requests.Extended) > 0
	}
	digest, object := *p.digest, *p.pod
	object.Name, object.UID = fmt.Sprintf("%s-%d", object.Name, serial), types.UID(fmt.Sprintf("whatif-%d", serial)) // an API server makes none like it
	digest.Object, digest.Name, digest.UID = &object, object.Name, object.UID
	return &digest
}

// evict removes victims, and counts them as disruptions of their budgets. It returns those
// that are still on a node.
func (t *trial) evict(victims []*nodetable.Pod) (left []*nodetable.Pod) {
	for _, v := range victims {
		if v = t.Table.Displace(v.UID); v != nil {
			t.disrupt(v, 1)
			left = append(left, v)
		}
	}
	return left
}

// restore reverts evict for victims on a row.
func (t *trial) restore(victims []*nodetable.Pod, row nodetable.Row) {
	for _, v := range victims {
		t.Table.Place(v, row)
		t.disrupt(v, -1)
	}
}

// disrupt counts a victim n times for its budgets.
func (t *trial) disrupt(victim *nodetable.Pod, n int32) {
	t.Table.Budgets(victim, func(b *nodetable.Budget) {
		if _, disrupted := b.Object.Status.DisruptedPods[victim.Name]; !disrupted {
			t.Scheduler.disrupted[b.Object.UID] += n
		}
	})
}

// fits filters the node of a placement, outside of an attempt.
func (t *trial) fits(p *placement) bool {
	if status := p.part.Begin(t.check, t.Table, p.pod, t.nominatedPods()); !status.OK() {
		return false
	}
	fits, _, _ := t.check.Fits(t.Table.Row(p.node))
	return fits
}

// place places a pod and runs Reserve.
func (t *trial) place(p placement, state any) {
	row := t.Table.Row(p.node)
	p.assignment = framework.Assignment{Pod: p.pod, Node: t.Table.Node(row), State: state, Retried: true, WhatIf: true}
	t.Table.Place(p.pod, row)
	if status := p.part.Reserve(p.assignment); !status.OK() {
		t.Table.Displace(p.pod.UID)
		p.part.ended, p.part.message = failed, rejected(status).Message
		return
	}
	p.part.placed++
	t.placed = append(t.placed, p)
}

// filtered groups the nodes of a cycle that do not fit.
func filtered(c *framework.Cycle) []Filtered {
	counts := map[framework.Rejection]int{}
	for row := range c.Evaluated.All() {
		if why, rejected := c.Rejected(row); rejected {
			counts[why]++
		}
	}
	groups := []Filtered{}
	for why, n := range counts {
		plugin, reasons := c.Explain(why)
		groups = append(groups, Filtered{plugin, reasons, !why.Unresolvable, n})
	}
	slices.SortFunc(groups, func(a, b Filtered) int {
		return cmp.Or(b.Nodes-a.Nodes, cmp.Compare(a.Plugin, b.Plugin), slices.Compare(a.Reasons, b.Reasons), map[bool]int{true: -1}[a.Resolvable]-map[bool]int{true: -1}[b.Resolvable])
	})
	return groups
}

// answer is that of the runs until now.
func (t *trial) answer() WhatIf {
	first := t.answerFor(0)
	for i := range t.names[1:] {
		first.Further = append(first.Further, t.answerFor(i+1))
	}
	return first
}

func (t *trial) answerFor(workload int) WhatIf {
	x := WhatIf{Pod: t.names[workload], Changed: t.changed, Nodes: []WhatIfNode{}, Pods: []WhatIfPod{}, Filtered: []Filtered{}, LeftOut: []string{}}
	for _, p := range t.parts {
		if p.workload == workload {
			x.count(p)
		}
	}
	nodes := map[string]*WhatIfNode{}
	for _, p := range t.placed {
		if p.part.workload != workload {
			continue
		}
		name := p.node.Value()
		node := nodes[name]
		if node == nil {
			node = &WhatIfNode{Node: name}
			nodes[name] = node
		}
		pod := WhatIfPod{Pod: len(x.Pods) + 1, Result: Scheduled, Node: name, Victims: []string{}, Violations: p.violations}
		if p.nominated {
			pod.Result, pod.Node, pod.Nominated = Nominated, "", name
			x.Nominated++
			node.Nominated++
		} else {
			x.Scheduled++
			node.Scheduled++
		}
		for _, v := range p.victims {
			pod.Victims = append(pod.Victims, v.String())
		}
		x.Preempted += len(p.victims)
		x.Violations += p.violations
		x.Pods = append(x.Pods, pod)
	}
	for _, node := range nodes {
		x.Nodes = append(x.Nodes, *node)
	}
	slices.SortFunc(x.Nodes, func(a, b WhatIfNode) int { return cmp.Compare(a.Node, b.Node) })
	return x
}

// count adds the pods of a part that have no node. The message is that of the first one.
func (x *WhatIf) count(p *part) {
	if x.Count == 0 {
		x.Profile = p.pod.Spec.SchedulerName
		for _, plugin := range p.NotInWhatIf() {
			x.LeftOut = append(x.LeftOut, "PostFilter, Reserve and Permit of the out-of-tree plugin "+plugin)
		}
	}
	x.Count += p.count
	left, message := p.count-p.placed, p.message
	if p.ended == noNode {
		x.Unschedulable += left
	} else {
		x.Untried += left
	}
	if p.ended == open {
		message = fmt.Sprintf("the time of %s is over", WhatIfTime)
	}
	if left > 0 && x.Message == "" {
		x.Message = message
		x.Filtered = append(x.Filtered, p.filtered...)
	}
}

// disruptionsAllowed is how many disruptions a budget allows after those of the what-if
// that runs. count counts those of a budget; nil: its status says it.
func (s *Scheduler) disruptionsAllowed(count func(*policyv1.PodDisruptionBudget) int32) func(*policyv1.PodDisruptionBudget) int32 {
	return func(budget *policyv1.PodDisruptionBudget) int32 {
		allowed := budget.Status.DisruptionsAllowed
		if count != nil {
			allowed = count(budget)
		}
		return allowed - s.disrupted[budget.UID]
	}
}
