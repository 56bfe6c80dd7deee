package cycle

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/preempt"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// Warning describes a preemption that did not free a node for the pod.
type Warning struct {
	// Reason is ReasonNominationExpired or ReasonPreemptionLoop.
	Reason, Note string
}

// Reasons of warnings.
const (
	ReasonNominationExpired = "NominationExpired"
	ReasonPreemptionLoop    = "PreemptionLoop"
)

// nominationDeadline is the instant until which a nomination waits for victims to
// terminate.
type nominationDeadline struct {
	pod   types.UID
	node  string
	until time.Time

	serial uint64
}

// nominationDeadlines has the deadline that was added last for each pod.
type nominationDeadlines struct {
	sorted []nominationDeadline // by until, with those that were replaced
	latest map[types.UID]uint64 // serial by pod
	serial uint64
	limit  int // length at which sorted is swept
}

func (n *nominationDeadlines) add(d nominationDeadline) {
	n.serial++
	d.serial, n.latest[d.pod] = n.serial, n.serial
	at, _ := slices.BinarySearchFunc(n.sorted, d.until, func(other nominationDeadline, until time.Time) int { return other.until.Compare(until) })
	n.sorted = slices.Insert(n.sorted, at, d)
}

// first is the earliest deadline of a nomination that there is; false: there is none. It
// drops the others.
func (n *nominationDeadlines) first(holds func(nominationDeadline) bool) (d nominationDeadline, found bool) {
	for len(n.sorted) > 0 {
		if d = n.sorted[0]; n.latest[d.pod] == d.serial && holds(d) {
			return d, true
		}
		n.removeFirst()
	}
	return d, false
}

func (n *nominationDeadlines) removeFirst() {
	d := n.sorted[0]
	n.sorted = n.sorted[1:]
	n.forget(d)
}

func (n *nominationDeadlines) forget(d nominationDeadline) {
	if n.latest[d.pod] == d.serial {
		delete(n.latest, d.pod)
	}
}

// sweep drops what holds no longer when the number has doubled.
func (n *nominationDeadlines) sweep(holds func(nominationDeadline) bool) {
	if len(n.sorted) < n.limit {
		return
	}
	n.sorted = slices.DeleteFunc(n.sorted, func(d nominationDeadline) bool {
		if n.latest[d.pod] == d.serial && holds(d) {
			return false
		}
		n.forget(d)
		return true
	})
	n.limit = 2*len(n.sorted) + 64
}

// setNominationDeadline sets the deadline of a nomination: the longest grace period
// of the victims plus preempt.TerminationTimeout. Victims of a nomination of another
// process are not known; then expireNominations extends the deadline.
func (s *Scheduler) setNominationDeadline(now time.Time, pod types.UID, node string, victims []*nodetable.Pod) {
	last := now
	for _, v := range victims {
		if end := s.terminationDeadline(v, now); end.After(last) {
			last = end
		}
	}
	delete(s.nominationDeadlines.latest, pod)
	s.nominationDeadlines.sweep(s.isNominated)
	if node != "" {
		s.nominationDeadlines.add(nominationDeadline{pod: pod, node: node, until: last.Add(preempt.TerminationTimeout)})
	}
}

// AddNominatedPod records the nomination in the status of a pod, if there is one.
func (s *Scheduler) AddNominatedPod(now time.Time, pod *nodetable.Pod) {
	s.Nominator.Nominate(pod, pod.Object.Status.NominatedNodeName)
	if s.ResponsibleFor(pod) {
		s.setNominationDeadline(now, pod.UID, pod.Object.Status.NominatedNodeName, nil)
	}
}

func (s *Scheduler) isNominated(n nominationDeadline) bool { return s.Nominator.Node(n.pod) == n.node }

// expireNominations clears the nominations whose victims did not terminate in time
// and activates the pods. Preemption does not select a node with an overdue victim
// again.
func (s *Scheduler) expireNominations(now time.Time) {
	for {
		n, found := s.nominationDeadlines.first(s.isNominated)
		if !found || n.until.After(now) {
			return
		}
		s.nominationDeadlines.removeFirst()
		e := s.Queue.Get(n.pod)
		if e == nil {
			continue
		}
		overdue, last := s.terminatingPods(n.node, e.Pod.Priority, now)
		switch {
		case overdue != nil:
			s.expireNomination(now, e, n.node, overdue)
		case last.After(now.Add(-preempt.TerminationTimeout)):
			n.until = last.Add(preempt.TerminationTimeout)
			s.nominationDeadlines.add(n)
		}
	}
}

// wallTime converts an instant to the clock of API objects.
func (s *Scheduler) wallTime(now time.Time) time.Time { return now.Add(s.ClockOffset) }

// terminationDeadline is the end of a pod's grace period, by the Scheduler's clock.
func (s *Scheduler) terminationDeadline(pod *nodetable.Pod, now time.Time) time.Time {
	return preempt.TerminationDeadline(pod, s.wallTime(now)).Add(-s.ClockOffset)
}

// terminatingPods looks at the terminating pods of a node below a priority. It
// returns an overdue one, nil if there is none, and the last end of a grace period,
// zero if no pod terminates.
func (s *Scheduler) terminatingPods(node string, priority int32, now time.Time) (overdue *nodetable.Pod, last time.Time) {
	row := s.Table.Row(nodetable.Intern(node))
	if row == nodetable.NoRow {
		return nil, last
	}
	for _, pod := range s.Table.PodsOn(row) {
		if pod.Priority >= priority || !pod.Terminating {
			continue
		}
		if end := s.terminationDeadline(pod, now); end.After(last) {
			last = end
		}
		if preempt.Overdue(pod, s.wallTime(now)) {
			overdue = pod
		}
	}
	return overdue, last
}

func (s *Scheduler) expireNomination(now time.Time, e *queue.Entry, node string, overdue *nodetable.Pod) {
	s.callbacks.Warn(e.Pod, Warning{ReasonNominationExpired, fmt.Sprintf(
		"Victim %s on node %s did not terminate by %s; the nomination is cleared", overdue, node, preempt.TerminationDeadline(overdue, s.wallTime(now)).UTC().Format(time.RFC3339))})
	s.releaseNomination(now, e.Pod, node)
}
