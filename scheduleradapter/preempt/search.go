package preempt

import (
	"fmt"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// search is a search for candidates, with the reasons of rejected nodes.
type search struct {
	*framework.Cycle
	plugin       *Plugin
	budgets      budgets  // of a node
	lower        []ranked // pods of lower priority on a node
	unresolvable int      // unresolvable nodes
	noVictims    int      // nodes without a pod of lower priority
	paused       int      // nodes of Env.PausedNodes
	overdue      int      // nodes with an overdue victim
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
	s.lower = s.plugin.ledger.lower(row, s.Pod.Priority)
	if len(s.lower) == 0 {
		s.noVictims++
		return candidate{}, nil
	}
	free, known := s.FreeBesideNominated(row)
	if !known {
		return s.tryOut(row)
	}
	free = free.Plus(s.lower[0].sum)
	if why, rejected := s.RejectedWith(free); rejected {
		s.rejections[why]++
		return candidate{}, nil
	}
	return s.reprieve(row, func(i int) (bool, error) {
		without := free.Minus(s.lower[i].sum).Plus(sumFrom(s.lower, i+1))
		_, rejected := s.RejectedWith(without)
		if !rejected {
			free = without
		}
		return !rejected, nil
	})
}

// tryOut removes the pods of lower priority in the table and adds back as many as
// fit.
func (s *search) tryOut(row nodetable.Row) (candidate, error) {
	s.Table.Try()
	defer s.Table.Undo()
	for i := range s.lower {
		s.Table.Displace(s.lower[i].pod.UID)
	}
	fits, why, status := s.Fits(row)
	switch {
	case status.Code == framework.Error:
		return candidate{}, status.Err
	case !fits:
		s.rejections[why]++
		return candidate{}, nil
	}
	return s.reprieve(row, func(i int) (bool, error) {
		pod := s.lower[i].pod
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

// reprieve keeps as many pods of lower priority as possible: first those that a
// budget protects, each group by importance. fits adds the pod of an index. Source:
// kube-scheduler's SelectVictimsOnNode.
func (s *search) reprieve(row nodetable.Row, fits func(i int) (bool, error)) (candidate, error) {
	p := s.plugin
	found := newCandidate(row)
	begin := len(p.victims)
	p.protected = s.budgets.protect(p.protected[:0], s.lower)
	for _, protected := range [...]bool{true, false} {
		for i := range s.lower {
			if p.protected[i] != protected {
				continue
			}
			switch fit, err := fits(i); {
			case err != nil:
				return candidate{}, err
			case fit:
				continue
			}
			victim := &s.lower[i]
			p.victims = append(p.victims, victim.pod)
			found.count(victim.priority, victim.started, victim.terminating)
			if protected {
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
