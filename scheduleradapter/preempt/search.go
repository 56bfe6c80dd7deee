package preempt

import (
	"fmt"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// search is one look for candidates, with the reasons of nodes that are none.
type search struct {
	*framework.Cycle
	plugin   *Plugin
	budgets  []budget
	hopeless int // nodes on which nobody's going helps
	nobody   int // nodes without a pod of lower priority
	paused   int // nodes where the pod is not to preempt now
	late     int // nodes with a victim that should be gone by now
	refused  map[framework.Rejection]int
}

// why counts the reasons of the nodes that are no candidates.
func (s *search) why() framework.Histogram {
	why := framework.Histogram{}
	if s.hopeless > 0 {
		why["Preemption is not helpful for scheduling"] = s.hopeless
	}
	if s.nobody > 0 {
		why["No preemption victims found for incoming pod"] = s.nobody
	}
	if s.paused > 0 {
		why["node(s) filled up again after earlier preemptions"] = s.paused
	}
	if s.late > 0 {
		why["node(s) had a terminating pod that does not go"] = s.late
	}
	for rejection, n := range s.refused {
		_, reasons := s.Explain(rejection)
		for _, reason := range reasons {
			why[reason] += n
		}
	}
	return why
}

// tryNode finds out which pods would have to leave a node. It returns no victims
// where the pod would not fit even without all those of lower priority.
func (s *search) tryNode(row nodetable.Row) (candidate, error) {
	gone := s.plugin.ledger.below(row, s.Pod.Priority)
	if gone.Pods == 0 {
		s.nobody++
		return candidate{}, nil
	}
	why, lacks, measured := s.RejectedWithout(row, gone)
	switch {
	case lacks:
		s.refused[why]++
		return candidate{}, nil
	case measured:
		s.listLower(row)
		return s.reprieve(row, func(pod *nodetable.Pod) (bool, error) {
			still := gone.Minus(pod.Requests.Sum())
			_, lacks, _ := s.RejectedWithout(row, still)
			if !lacks {
				gone = still
			}
			return !lacks, nil
		})
	}
	return s.tryOut(row)
}

// tryOut takes the pods off the node and puts back who may stay.
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
		s.refused[why]++
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

func (s *search) listLower(row nodetable.Row) {
	p := s.plugin
	p.lower = p.lower[:0]
	for _, pod := range s.Table.PodsOn(row) {
		if pod.Priority < s.Pod.Priority {
			p.lower = append(p.lower, pod)
		}
	}
	sortByImportance(p.lower)
}

// reprieve lets stay whom it can of the node's lower pods: first those whom a
// budget protects, each time the most important first.
func (s *search) reprieve(row nodetable.Row, stays func(*nodetable.Pod) (bool, error)) (candidate, error) {
	p := s.plugin
	found := candidate{row: row}
	begin := len(p.victims)
	violating, others := split(p.lower, s.budgets)
	for i, group := range [...][]*nodetable.Pod{violating, others} {
		for _, pod := range group {
			switch stay, err := stays(pod); {
			case err != nil:
				return candidate{}, err
			case stay:
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
