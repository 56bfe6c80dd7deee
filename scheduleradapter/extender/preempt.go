package extender

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Preempt calls the preemptVerb.
func (e *Extender) Preempt(c *framework.Cycle, candidates []framework.Candidate) ([]framework.Candidate, error) {
	if len(candidates) == 0 || !e.interested(c.Pod.Object) {
		return candidates, nil
	}
	rows := make([]nodetable.Row, len(candidates))
	for i := range candidates {
		rows[i] = candidates[i].Row
	}
	r := e.ask(c, e.cfg.PreemptVerb, rows, func() any { return e.victims(c, candidates) }, &wire.ExtenderPreemptionResult{})
	if err := c.Await(r); err != nil {
		return nil, err
	}
	err := r.err
	var agreed []framework.Candidate
	if err == nil {
		agreed, err = e.agreed(c, candidates, r)
	}
	if s, failed := e.statusOf(err); failed {
		return candidates, s.Err
	}
	return agreed, nil
}

// victims are the candidates in the form of the request.
func (e *Extender) victims(c *framework.Cycle, candidates []framework.Candidate) *wire.ExtenderPreemptionArgs {
	args := &wire.ExtenderPreemptionArgs{Pod: c.Pod.Object}
	if e.cfg.NodeCacheCapable {
		args.NodeNameToMetaVictims = make(map[string]*wire.MetaVictims, len(candidates))
	} else {
		args.NodeNameToVictims = make(map[string]*wire.Victims, len(candidates))
	}
	for _, candidate := range candidates {
		name, violations := c.Table.Node(candidate.Row).Name.Value(), int64(candidate.Violations)
		var pods []*v1.Pod
		var metas []*wire.MetaPod
		for _, victim := range candidate.Victims {
			pods = append(pods, victim.Object)
			metas = append(metas, &wire.MetaPod{UID: string(victim.UID)})
		}
		if e.cfg.NodeCacheCapable {
			args.NodeNameToMetaVictims[name] = &wire.MetaVictims{Pods: metas, NumPDBViolations: violations}
		} else {
			args.NodeNameToVictims[name] = &wire.Victims{Pods: pods, NumPDBViolations: violations}
		}
	}
	return args
}

// agreed are the candidates that the response names, in their order, with its
// victims. A node that was no candidate, or a victim that was not on its node, is an
// error. A node without victims is an error, or is left out if the extender is
// ignorable. A node that a victim has left since the request is left out.
func (e *Extender) agreed(c *framework.Cycle, candidates []framework.Candidate, r *request) (agreed []framework.Candidate, err error) {
	answer := r.result.(*wire.ExtenderPreemptionResult).NodeNameToMetaVictims
	known := 0
	for name := range answer {
		if r.asked[name] {
			known++
		}
	}
candidates:
	for _, candidate := range candidates {
		name := c.Table.Node(candidate.Row).Name.Value()
		victims, named := answer[name]
		if !named {
			continue
		}
		switch {
		case victims != nil && len(victims.Pods) > 0:
		case e.cfg.Ignorable:
			continue
		default:
			return nil, fmt.Errorf("expected at least one victim pod on node %q", name)
		}
		candidate.Victims, candidate.Violations = nil, int(victims.NumPDBViolations)
		for _, meta := range victims.Pods {
			pod := podOn(c.Table, candidate.Row, meta)
			switch {
			case pod != nil:
			case r.found:
				continue candidates
			default:
				return nil, fmt.Errorf("claims to preempt pod (UID: %s) on node %q, but the pod is not found on that node", uid(meta), name)
			}
			candidate.Victims = append(candidate.Victims, pod)
		}
		agreed = append(agreed, candidate)
	}
	if known < len(answer) {
		return nil, fmt.Errorf("names %d nodes for preemption that were not in the input", len(answer)-known)
	}
	return agreed, nil
}

func podOn(table *nodetable.Table, row nodetable.Row, meta *wire.MetaPod) *nodetable.Pod {
	for _, pod := range table.PodsOn(row) {
		if string(pod.UID) == uid(meta) {
			return pod
		}
	}
	return nil
}

func uid(meta *wire.MetaPod) string {
	if meta == nil {
		return ""
	}
	return meta.UID
}
