package cycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/preempt"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// HandleBindingFailure forgets a pod whose binding cycle failed and returns it to
// the queue.
func (s *Scheduler) HandleBindingFailure(now time.Time, a *Attempt, status framework.Status) {
	s.forget(a.Binding)
	a.Message = status.Message()
	s.handleSchedulingFailure(now, a, rejected(status))
	s.PodLeft(now, a.Pod, a.Binding.Node.Name)
}

// PodLeft moves the pods that may fit now that a pod no longer uses a node, or is no
// longer nominated to it.
func (s *Scheduler) PodLeft(now time.Time, pod *nodetable.Pod, node nodetable.Symbol) {
	s.Queue.MoveAllToActiveOrBackoff(now, &framework.Occurrence{
		Event:  framework.Event{Resource: framework.AssignedPod, Action: framework.Delete},
		OldPod: pod, Left: node, Overdue: preempt.Overdue(pod, s.wallTime(now)),
	})
}

// handleSchedulingFailure returns a pod to the queue, nominates a node if PostFilter
// found victims, and preempts them.
func (s *Scheduler) handleSchedulingFailure(now time.Time, a *Attempt, r Result) {
	a.Node, a.Outcome = "", Unschedulable
	if r.Status.Code == framework.Error {
		a.Outcome = Failed
	}
	if r.Nomination.Node != nil {
		a.Outcome, a.Nominated = Nominated, r.Nomination.Node.Name.Value()
		a.Victims, a.Violations = r.Nomination.Victims, r.Nomination.Violations
	}
	before := s.Nominator.Node(a.Pod.UID)
	s.callbacks.AttemptEnded(a)
	s.Queue.Fail(now, a.Entry, queue.Rejection{Unschedulable: r.Rejectors, Pending: r.Pending})
	switch {
	case r.Nomination.Decided:
		s.nominate(now, a)
	case a.Place() != queue.Nowhere && s.Nominator.Node(a.Pod.UID) == "" && a.Entry.Pod.Object.Status.NominatedNodeName != "":
		s.restoreNomination(now, a.Entry.Pod, r.Status.Plugin == preempt.Name)
	}
	delete(s.previousNominations, a.Pod.UID)
	if before != "" && s.Nominator.Node(a.Pod.UID) != before {
		s.PodLeft(now, a.Pod, nodetable.Intern(before))
	}
	if len(a.Victims) > 0 {
		s.setNominationDeadline(now, a.Pod.UID, a.Nominated, a.Victims)
		s.recordPreemption(now, a)
		s.callbacks.Preempt(a)
	}
}

// clearNomination clears the nomination of an assumed pod. If Permit or PreBind may
// take long, status.nominatedNodeName names the assumed node meanwhile: the cluster
// autoscaler reads it.
func (s *Scheduler) clearNomination(now time.Time, a *Attempt, slow bool) {
	if slow {
		s.publishNomination(now, a.Pod, a.Node)
	}
	if node := s.Nominator.Node(a.Pod.UID); node != "" {
		s.previousNominations[a.Pod.UID] = node
		s.Nominator.Clear(a.Pod.UID)
	}
	s.preemptionLoops.forget(a.Pod, a.Node)
}

// restoreNomination restores the nomination that an assumed pod had before, unless
// the pod was preempted.
func (s *Scheduler) restoreNomination(now time.Time, pod *nodetable.Pod, preempted bool) {
	node := s.previousNominations[pod.UID]
	if preempted {
		node = ""
	}
	s.setNomination(now, pod, node)
	s.setNominationDeadline(now, pod.UID, node, nil)
}

// nominate nominates the node of an attempt, empty for none. If a victim is to be deleted,
// the nominations of pods of lower priority for that node are cleared.
// Source: kube-scheduler's Executor.prepareCandidateAsync.
func (s *Scheduler) nominate(now time.Time, a *Attempt) {
	if slices.ContainsFunc(a.Victims, func(victim *nodetable.Pod) bool { return !victim.Terminating }) {
		var lower []*nodetable.Pod
		for other := range s.Nominator.On(nodetable.Intern(a.Nominated)) {
			if other.Priority < a.Pod.Priority {
				lower = append(lower, other)
			}
		}
		for _, other := range lower {
			s.releaseNomination(now, other, a.Nominated)
		}
	}
	s.setNomination(now, a.Pod, a.Nominated)
}

// releaseNomination clears the nomination of a pod, and activates it and the pods
// that it was in the way of.
func (s *Scheduler) releaseNomination(now time.Time, pod *nodetable.Pod, node string) {
	s.setNomination(now, pod, "")
	s.PodLeft(now, pod, nodetable.Intern(node))
	s.Queue.Activate(now, pod.UID)
}

func (s *Scheduler) setNomination(now time.Time, pod *nodetable.Pod, node string) {
	s.Nominator.Nominate(s.publishNomination(now, pod, node), node)
}

// publishNomination sets status.nominatedNodeName of a pod and returns that version.
func (s *Scheduler) publishNomination(now time.Time, pod *nodetable.Pod, node string) *nodetable.Pod {
	if pod.Object.Status.NominatedNodeName == node {
		return pod
	}
	pod = UpdatedPod(pod, func(object *v1.Pod) { object.Status.NominatedNodeName = node })
	if s.Queue.Get(pod.UID) != nil {
		s.Queue.Update(now, pod, 0)
	}
	s.callbacks.Nominated(pod, node)
	return pod
}
