// Package preempt is the plugin DefaultPreemption: it selects a node and victims
// for a pod that fits on no node. Package cycle deletes the victims.
package preempt

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const Name = "DefaultPreemption"

// Plugin is DefaultPreemption.
type Plugin struct {
	env framework.Env
	// percentage and absolute bound the number of candidates; the greater one
	// applies.
	percentage, absolute int

	ledger ledger

	// State of the running search.
	resolvable nodetable.Bits
	rows       []nodetable.Row
	protected  []bool // by budgets: pods of a node
	candidates []candidate
	victims    []*nodetable.Pod // of all candidates
}

// New makes the plugin; args is a complete DefaultPreemptionArgs.
func New(args any, env framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.DefaultPreemptionArgs)
	if !ok || a.MinCandidateNodesPercentage == nil || a.MinCandidateNodesAbsolute == nil {
		return nil, fmt.Errorf("%s: arguments are %T without a number of candidates", Name, args)
	}
	return &Plugin{env: env, percentage: int(*a.MinCandidateNodesPercentage), absolute: int(*a.MinCandidateNodesAbsolute)}, nil
}

func (*Plugin) Name() string { return Name }

// PreEnqueue gates a pod while its victims, or those of its group, are being deleted.
func (p *Plugin) PreEnqueue(pod *nodetable.Pod) framework.Status {
	if p.env.Preempting == nil {
		return framework.Status{}
	}
	if p.env.PodGroups != nil && pod.Object.Spec.SchedulingGroup != nil {
		if group := p.groupOf(pod); group != nil && p.env.Preempting(group.UID) {
			return framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: "waiting for the preemption for this pod group to be finished"}
		}
		return framework.Status{}
	}
	if !p.env.Preempting(pod.UID) {
		return framework.Status{}
	}
	return framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: "waiting for the preemption for this pod to be finished"}
}

// Events are: the deletion of another pod may help a pod that was preempted before it
// was bound, or is gated. Without Env.Preempting victims are deleted synchronously.
func (p *Plugin) Events() []framework.EventHint {
	if p.env.Preempting == nil {
		return nil
	}
	return []framework.EventHint{{
		Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete},
		Hint: func(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
			if o.OldPod != nil && o.OldPod.UID == pod.UID {
				return framework.QueueSkip, nil
			}
			return framework.Queue, nil
		},
	}}
}

// PostFilter selects a node and victims.
func (p *Plugin) PostFilter(c *framework.Cycle) (framework.Nomination, framework.Status) {
	p.resolvable = c.Resolvable(p.resolvable)
	if why := p.ineligible(c); why != "" {
		return framework.Nomination{}, framework.Status{Code: framework.Unschedulable, Reason: "preemption: " + why}
	}
	candidates, why, err := p.search(c)
	if len(candidates) > 0 && len(p.env.Preemptors) > 0 {
		if candidates, err = p.consult(c, candidates); err == nil && len(candidates) == 0 {
			return framework.Nomination{}, framework.Status{Code: framework.Unschedulable, Reason: "preemption: no candidate node for preemption"}
		}
	}
	switch {
	case len(candidates) > 0:
		best := pickOneNode(candidates)
		node := c.Table.Node(best.row)
		return framework.Nomination{Node: node, Decided: true, Victims: slices.Clone(best.victims), Violations: best.violations}, framework.Status{
			Reason: fmt.Sprintf("preemption: found a potential placement for pod on node %s, preempting %d victims", node.Name.Value(), len(best.victims)),
		}
	case err != nil:
		return framework.Nomination{}, framework.AsStatus(fmt.Errorf("preemption: %w", err))
	}
	return framework.Nomination{Decided: true}, framework.Status{
		Code: framework.Unschedulable, Reason: "preemption: " + why.Message(c.Table.Len()),
	}
}

// offset is the index in rows at which a search begins. Further runs of an attempt that
// preemptors suspend begin at the same one.
func (p *Plugin) offset(c *framework.Cycle) int {
	if len(p.env.Preemptors) == 0 {
		return p.env.Random.IntN(len(p.rows))
	}
	return c.Draw(func() int { return p.env.Random.IntN(len(p.rows)) }) % len(p.rows)
}

// consult calls the preemptors in order.
func (p *Plugin) consult(c *framework.Cycle, found []candidate) ([]candidate, error) {
	candidates := make([]framework.Candidate, len(found))
	for i, f := range found {
		candidates[i] = framework.Candidate{Row: f.row, Victims: f.victims, Violations: f.violations}
	}
	for _, other := range p.env.Preemptors {
		var err error
		if candidates, err = other.Preempt(c, candidates); err != nil {
			return nil, err
		}
	}
	found = found[:0]
	for _, f := range candidates {
		sortByImportance(f.Victims)
		c := newCandidate(f.Row)
		c.victims, c.violations = f.Victims, f.Violations
		for _, v := range c.victims {
			c.count(v.Priority, started(v), v.Terminating)
		}
		found = append(found, c)
	}
	return found, nil
}

// ineligible is why a pod may not preempt; empty: it may. A nominated pod waits
// while a victim terminates on its node, unless the node became unresolvable.
// Source: kube-scheduler's PodEligibleToPreemptOthers.
func (p *Plugin) ineligible(c *framework.Cycle) string {
	object := c.Pod.Object
	if policy := object.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	row := c.Table.Row(nodetable.Intern(object.Status.NominatedNodeName))
	if row == nodetable.NoRow || !p.resolvable.Has(row) {
		return ""
	}
	for _, pod := range c.Table.PodsOn(row) {
		if pod.Priority < c.Pod.Priority && pod.Terminating && wasPreempted(pod.Object) {
			return "not eligible due to a terminating pod on the nominated node."
		}
	}
	return ""
}

func wasPreempted(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == v1.DisruptionTarget {
			return c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
		}
	}
	return false
}

// pause removes the nodes on which the pod must not preempt now, and counts them.
func (p *Plugin) pause(c *framework.Cycle) (n int) {
	if p.env.PausedNodes == nil {
		return 0
	}
	for _, name := range p.env.PausedNodes(c.Pod) {
		if row := c.Table.Row(name); row != nodetable.NoRow && p.resolvable.Has(row) {
			p.resolvable.Clear(row)
			n++
		}
	}
	return n
}

// search tries nodes from a random one until there are enough candidates, one of
// which violates no budget. why counts the reasons of the other nodes. The
// candidates are valid until the next search.
func (p *Plugin) search(c *framework.Cycle) (candidates []candidate, why framework.Histogram, err error) {
	p.rows = p.rows[:0]
	s := search{Cycle: c, plugin: p, budgets: newBudgets(p), rejections: map[framework.Rejection]int{}}
	s.paused = p.pause(c)
	for _, row := range c.Table.Order() {
		if p.resolvable.Has(row) {
			p.rows = append(p.rows, row)
		}
	}
	s.unresolvable = c.Table.Len() - len(p.rows) - s.paused
	if len(p.rows) == 0 {
		return nil, s.why(), nil
	}
	enough := min(max(len(p.rows)*p.percentage/100, p.absolute), len(p.rows))
	p.ledger.follow(c.Table)
	p.candidates, p.victims = p.candidates[:0], p.victims[:0]
	var failures []error
	clean, offset := 0, p.offset(c)
	for i := range p.rows {
		found, failure := s.tryNode(p.rows[(offset+i)%len(p.rows)])
		if failure != nil {
			failures = append(failures, failure)
			continue
		}
		if len(found.victims) == 0 {
			continue
		}
		if found.terminating && slices.ContainsFunc(found.victims, func(v *nodetable.Pod) bool { return Overdue(v, c.Now) }) {
			s.overdue++
			continue
		}
		p.candidates = append(p.candidates, found)
		if found.violations == 0 {
			clean++
		}
		if clean > 0 && len(p.candidates) >= enough {
			break
		}
	}
	return p.candidates, s.why(), utilerrors.NewAggregate(failures)
}
