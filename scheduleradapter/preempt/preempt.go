// Package preempt is the plugin DefaultPreemption: where a pod fits nowhere, it
// looks for the node where the least has to go for it. It names the victims;
// telling them to go is its owner's.
package preempt

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "DefaultPreemption"

// Plugin is DefaultPreemption.
type Plugin struct {
	env framework.Env
	// percentage and absolute are how many candidates to find: the greater one.
	percentage, absolute int

	resolvable nodetable.Bits
	rows       []nodetable.Row
	lower      []*nodetable.Pod
}

// New makes the plugin; args are a DefaultPreemptionArgs with its defaults.
func New(args any, env framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.DefaultPreemptionArgs)
	if !ok || a.MinCandidateNodesPercentage == nil || a.MinCandidateNodesAbsolute == nil {
		return nil, fmt.Errorf("%s: arguments are %T without a number of candidates", Name, args)
	}
	return &Plugin{env: env, percentage: int(*a.MinCandidateNodesPercentage), absolute: int(*a.MinCandidateNodesAbsolute)}, nil
}

// Name of the plugin.
func (*Plugin) Name() string { return Name }

// PreEnqueue holds a pod back while its victims are being told to go.
func (p *Plugin) PreEnqueue(pod *nodetable.Pod) framework.Status {
	if p.env.Preparing == nil || !p.env.Preparing(pod.UID) {
		return framework.Status{}
	}
	return framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: "waiting for the preemption for this pod to be finished"}
}

// Events that may help a pod that was itself preempted before it was bound, or is
// held back: another one left. Where nobody is told behind the scheduler, victims
// leave at once.
func (p *Plugin) Events() []framework.EventHint {
	if p.env.Preparing == nil {
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

// PostFilter chooses a node and who has to leave it.
func (p *Plugin) PostFilter(c *framework.Cycle) (framework.Nomination, framework.Status) {
	p.resolvable = c.Resolvable(p.resolvable)
	if why := p.ineligible(c); why != "" {
		return framework.Nomination{}, framework.Status{Code: framework.Unschedulable, Reason: "preemption: " + why}
	}
	candidates, why, err := p.search(c)
	switch {
	case len(candidates) > 0:
		best := pick(candidates)
		node := c.Table.Node(best.row)
		return framework.Nomination{Node: node, Decided: true, Victims: best.victims}, framework.Status{
			Reason: fmt.Sprintf("preemption: found a potential placement for pod on node %s, preempting %d victims", node.Name.Value(), len(best.victims)),
		}
	case err != nil:
		return framework.Nomination{}, framework.Failed(fmt.Errorf("preemption: %w", err))
	}
	return framework.Nomination{Decided: true}, framework.Status{
		Code: framework.Unschedulable, Reason: "preemption: " + why.Message(c.Table.Len()),
	}
}

// ineligible is why a pod may not preempt, empty where it may. A pod that was
// promised a node waits while a victim of preemption is on its way out there,
// unless the node has become impossible for it.
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

// search tries nodes from a random one on until there are enough candidates, one
// of which violates no budget. Where there is none, why counts the reasons.
func (p *Plugin) search(c *framework.Cycle) (candidates []candidate, why framework.Histogram, err error) {
	p.rows = p.rows[:0]
	for _, row := range c.Table.Order() {
		if p.resolvable.Has(row) {
			p.rows = append(p.rows, row)
		}
	}
	why = framework.Histogram{}
	if n := c.Table.Len() - len(p.rows); n > 0 {
		why["Preemption is not helpful for scheduling"] = n
	}
	if len(p.rows) == 0 {
		return nil, why, nil
	}
	enough := min(max(len(p.rows)*p.percentage/100, p.absolute), len(p.rows))
	budgets, err := p.budgets()
	if err != nil {
		return nil, nil, err
	}
	clean, offset := 0, p.env.Random.IntN(len(p.rows))
	for i := range p.rows {
		found, refusals, failure := p.tryNode(c, p.rows[(offset+i)%len(p.rows)], budgets)
		switch {
		case failure != nil:
			err = errors.Join(err, failure)
			continue
		case len(found.victims) == 0:
			for _, reason := range refusals {
				why[reason]++
			}
			continue
		}
		candidates = append(candidates, found)
		if found.violations == 0 {
			clean++
		}
		if clean > 0 && len(candidates) >= enough {
			break
		}
	}
	return candidates, why, err
}

// tryNode finds out which pods would have to leave a node, by taking them off
// there and putting back who may stay. Without victims the refusals tell why the
// pod does not come to fit.
func (p *Plugin) tryNode(c *framework.Cycle, row nodetable.Row, budgets []budget) (found candidate, refusals []string, err error) {
	p.lower = p.lower[:0]
	for _, pod := range c.Table.PodsOn(row) {
		if pod.Priority < c.Pod.Priority {
			p.lower = append(p.lower, pod)
		}
	}
	if len(p.lower) == 0 {
		return found, []string{"No preemption victims found for incoming pod"}, nil
	}
	c.Table.Try()
	defer c.Table.Undo()
	for _, pod := range p.lower {
		c.Table.Displace(pod.UID)
	}
	fits, rejection, s := c.Fits(row)
	switch {
	case s.Code == framework.Error:
		return found, nil, s.Err
	case !fits:
		_, refusals = c.Explain(rejection)
		return found, refusals, nil
	}
	found.row = row
	sortByImportance(p.lower)
	violating, others := split(p.lower, budgets)
	for i, group := range [...][]*nodetable.Pod{violating, others} {
		for _, pod := range group {
			c.Table.Place(pod, row)
			fits, _, s := c.Fits(row)
			if s.Code == framework.Error {
				return candidate{}, nil, s.Err
			}
			if fits {
				continue
			}
			c.Table.Displace(pod.UID)
			found.victims = append(found.victims, pod)
			if i == 0 {
				found.violations++
			}
		}
	}
	if len(found.victims) == 0 {
		return found, nil, fmt.Errorf("expected at least one victim pod on node %q", c.Table.Node(row).Name.Value())
	}
	sortByImportance(found.victims)
	return found, nil, nil
}
