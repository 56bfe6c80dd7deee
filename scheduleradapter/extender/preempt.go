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
	var result wire.ExtenderPreemptionResult
	err := e.call(c.Context(), e.cfg.PreemptVerb, e.victims(c, candidates), &result)
	var agreed []framework.Candidate
	if err == nil {
		agreed, err = e.agreed(c, candidates, result.NodeNameToMetaVictims)
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
// victims. A node that is no candidate, or a victim that is not on its node, is an
// error. A node without victims is an error, or is left out if the extender is
// ignorable.
func (e *Extender) agreed(c *framework.Cycle, candidates []framework.Candidate, answer map[string]*wire.MetaVictims) (agreed []framework.Candidate, err error) {
	known := 0
	for _, candidate := range candidates {
		name := c.Table.Node(candidate.Row).Name.Value()
		victims, named := answer[name]
		if !named {
			continue
		}
		known++
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
			if pod == nil {
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
