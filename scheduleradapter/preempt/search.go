package preempt

import (
	"fmt"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// search is a search for candidates, with the reasons of rejected nodes.
type search struct {
	*framework.Cycle
	plugin  *Plugin
	budgets budgets // of a node
	// groups are the pods of lower priority on a node: those that a budget protects, and
	// the others.
	groups       [2][]*nodetable.Pod
	unresolvable int // unresolvable nodes
	noVictims    int // nodes without a pod of lower priority
	paused       int // nodes of Env.PausedNodes
	overdue      int // nodes with an overdue victim
	rejections   map[framework.Rejection]int
}

// why counts the reasons of rejected nodes.
func (s *search) why() framework.Histogram {
	why := framework.Histogram{}
	if s.unresolvable > 0 {
		why["Preemption is not helpful for scheduling"] = s.unresolvable
	}
	if s.noVictims > 0 {
		why["No preemption victims found for incoming pod"] = s.noVictims
	}
	if s.paused > 0 {
		why["node(s) filled up again after earlier preemptions"] = s.paused
	}
	if s.overdue > 0 {
		why["node(s) had a terminating pod that does not go"] = s.overdue
	}
	for rejection, n := range s.rejections {
		_, reasons := s.Explain(rejection)
		for _, reason := range reasons {
			why[reason] += n
		}
	}
	return why
}

// tryNode selects victims on a node. It returns none if the pod does not fit
// without all pods of lower priority.
func (s *search) tryNode(row nodetable.Row) (candidate, error) {
	sum := s.plugin.ledger.below(row, s.Pod.Priority)
	if sum.Pods == 0 {
		s.noVictims++
		return candidate{}, nil
	}
	why, rejected, known := s.RejectedWithout(row, sum)
	switch {
	case rejected:
		s.rejections[why]++
		return candidate{}, nil
	case known:
		s.listLower(row)
		return s.reprieve(row, func(pod *nodetable.Pod) (bool, error) {
			without := sum.Minus(pod.Requests.Sum())
			_, rejected, _ := s.RejectedWithout(row, without)
			if !rejected {
				sum = without
			}
			return !rejected, nil
		})
	}
	return s.tryOut(row)
}

// tryOut removes the pods of lower priority in the table and adds back as many as
// fit.
func (s *search) tryOut(row nodetable.Row) (candidate, error) {
	s.listLower(row)
	s.Table.Try()
	defer s.Table.Undo()
	for _, pod := range s.plugin.lower {
		s.Table.Displace(pod.UID)
	}
	fits, why, status := s.Fits(row)
	switch {
	case status.Code == framework.Error:
		return candidate{}, status.Err
	case !fits:
		s.rejections[why]++
		return candidate{}, nil
	}
	return s.reprieve(row, func(pod *nodetable.Pod) (bool, error) {
		s.Table.Place(pod, row)
		fits, _, status := s.Fits(row)
		if status.Code == framework.Error {
			return false, status.Err
		}
		if !fits {
			s.Table.Displace(pod.UID)
		}
		return fits, nil
	})
}

// listLower lists the pods of lower priority on a node. The disruption controller counts
// them as running.
func (s *search) listLower(row nodetable.Row) {
	p := s.plugin
	p.lower = p.lower[:0]
	for _, pod := range s.Table.PodsOn(row) {
		if pod.Priority < s.Pod.Priority {
			p.lower = append(p.lower, pod)
		}
	}
	sortByImportance(p.lower)
	s.groups = s.budgets.split(p.lower)
}

// reprieve keeps as many pods of lower priority as possible: first those that a
// budget protects, each group by importance. Source: kube-scheduler's
// SelectVictimsOnNode.
func (s *search) reprieve(row nodetable.Row, fits func(*nodetable.Pod) (bool, error)) (candidate, error) {
	p := s.plugin
	found := candidate{row: row}
	begin := len(p.victims)
	for i, group := range s.groups {
		for _, pod := range group {
			switch fit, err := fits(pod); {
			case err != nil:
				return candidate{}, err
			case fit:
				continue
			}
			p.victims = append(p.victims, pod)
			if i == 0 {
				found.violations++
			}
		}
	}
	found.victims = p.victims[begin:len(p.victims):len(p.victims)]
	if len(found.victims) == 0 {
		return candidate{}, fmt.Errorf("expected at least one victim pod on node %q", s.Table.Node(row).Name.Value())
	}
	if found.violations > 0 {
		sortByImportance(found.victims)
	}
	return found, nil
}
