package cycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// podGroupUnschedulable is the first reason of a pod whose group is not scheduled.
const podGroupUnschedulable = "pod group is unschedulable"

// PodGroupResult is the end of an attempt to schedule a pod group.
type PodGroupResult struct {
	*queue.Entry
	Group *schedulingv1beta1.PodGroup
	// Condition is PodGroupInitiallyScheduled.
	Condition metav1.Condition
	// Scheduled and Unscheduled count the pods of the attempt.
	Scheduled, Unscheduled int
	Victims                []*nodetable.Pod
	pods                   []types.UID // of the attempt
}

// podGroupStatus is a status with kube-scheduler's list of reasons.
type podGroupStatus struct {
	framework.Status
	reasons []string
	// preempts: the nominated pods wait until victims have left.
	preempts bool
}

func (s *podGroupStatus) message() string {
	if s.Err != nil {
		return s.Err.Error()
	}
	return strings.Join(s.reasons, ", ")
}

// refused is a rejection of the group as a whole.
func refused(reasons ...string) podGroupStatus {
	return podGroupStatus{Status: framework.Status{Code: framework.Unschedulable}, reasons: append([]string{podGroupUnschedulable}, reasons...)}
}

func groupError(format string, err error) podGroupStatus {
	return podGroupStatus{Status: framework.AsStatus(fmt.Errorf(format, err))}
}

// ofStatus converts the status of PlacementFeasible.
func ofStatus(s framework.Status) podGroupStatus {
	status := podGroupStatus{Status: s}
	if s.Reason != "" {
		status.reasons = []string{s.Reason}
	}
	return status
}

// groupMember is a pod of a group in an attempt.
type groupMember struct {
	entry  *queue.Entry
	pod    *nodetable.Pod
	placed bool // found a node
	// result is why the pod found no node.
	result     Result
	assignment framework.Assignment
	row        nodetable.Row
	tried      bool
	cycle      *framework.Cycle // nil without Config.KeepsCycles
	nominated  string           // before the attempt
}

// groupAttempt is an attempt to schedule a pod group.
type groupAttempt struct {
	*Scheduler
	Profile
	entry   *queue.Entry
	group   *schedulingv1beta1.PodGroup
	key     nodetable.PodGroupKey
	members []*groupMember
	now     time.Time
}

// SchedulePodGroup attempts to schedule the pods of a popped group: minCount of them
// or none. The caller runs the binding cycles of the returned attempts, and then calls
// Remove or HandleBindingFailure for each. All other outcomes are complete. With Suspends
// it leaves no trace if the attempt is suspended.
func (s *Scheduler) SchedulePodGroup(now time.Time, e *queue.Entry) (scheduled []*Attempt) {
	c := s.cycle
	c.Now, c.Work, c.Suspends = now.Add(s.ClockOffset), s.Work, s.Suspends
	c.Timing.Plugins = false
	c.BeginPodGroup()
	defer c.EndPodGroup()
	g := &groupAttempt{Scheduler: s, entry: e, group: e.PodGroup(), now: now}
	g.key = nodetable.PodGroupKey{Namespace: g.group.Namespace, Name: g.group.Name}
	s.attempted = g.key
	defer func() { s.attempted = nodetable.PodGroupKey{} }()
	g.members = membersOf(e)
	g.Profile = s.profiles[e.Pod.Object.Spec.SchedulerName]
	if err := g.validate(); err != nil {
		status := podGroupStatus{Status: framework.AsStatus(err)}
		for _, m := range g.members {
			m.result = Result{Status: status.Status, Message: err.Error(), Nomination: cleared}
		}
		g.end(nil, status, framework.PodGroupNomination{})
		return nil
	}
	start := s.nextStart
	status := g.try(g.members)
	attempted := status.Code
	g.complete(status)
	var nomination framework.PodGroupNomination
	if status.Code == framework.Unschedulable {
		nomination, status = g.postFilter(status)
	}
	if _, suspended := c.Suspended(); suspended {
		s.nextStart = start
		return nil
	}
	if status.Code == framework.Success {
		scheduled = g.commit()
	}
	g.end(&attempted, status, nomination)
	return append(scheduled, s.allowGroup(g.key)...)
}

func membersOf(e *queue.Entry) []*groupMember {
	members := make([]*groupMember, len(e.Members))
	for i, entry := range e.Members {
		members[i] = &groupMember{entry: entry, pod: entry.Pod}
	}
	return members
}

// validate compares the pods, also those with a node, with the group. Source:
// kube-scheduler's validatePodGroup.
func (g *groupAttempt) validate() error {
	scheduler, priority := g.entry.Pod.Object.Spec.SchedulerName, ptr.Deref(g.group.Spec.Priority, 0)
	var policy v1.PreemptionPolicy
	pods := make([]*nodetable.Pod, 0, len(g.members))
	for _, m := range g.members {
		pods = append(pods, m.pod)
	}
	for i, pod := range append(pods, g.Table.PodsOfGroup(g.key)...) {
		spec := &pod.Object.Spec
		own := ptr.Deref(spec.PreemptionPolicy, v1.PreemptLowerPriority)
		if i == 0 {
			scheduler, policy = spec.SchedulerName, own
		}
		switch {
		case spec.SchedulerName != scheduler:
			return fmt.Errorf("all pods in a single pod group should have the same .spec.schedulerName set, got: %q and %q", spec.SchedulerName, scheduler)
		case pod.Priority != priority:
			return fmt.Errorf("all pods in a single pod group should have the same priority as the pod group's priority, got %d and %d", pod.Priority, priority)
		case own != policy:
			return fmt.Errorf("all pods in a single pod group should have the same preemption policy, got %v and %v", policy, own)
		}
	}
	return nil
}

// try finds nodes for the pods in order, each with those before it in the table, and
// undoes all of it.
func (g *groupAttempt) try(members []*groupMember) (status podGroupStatus) {
	g.Table.Try()
	defer func() {
		_, suspended := g.cycle.Suspended()
		g.undo(members, suspended || status.Code == framework.Success)
	}()
	placed, remaining := g.Table.PodGroupSize(g.key), len(members)
	feasible := g.PlacementFeasible(g.group, placed, remaining)
	switch feasible.Code {
	case framework.Error:
		return groupError("failed to evaluate placement feasibility: %w", feasible.Err)
	case framework.Unschedulable:
		return refused(feasible.Reason)
	}
	found := false
	for _, m := range members {
		g.tryMember(m)
		if !m.placed && m.result.Status.Code == framework.Error {
			return groupError("failed to schedule other pod from a pod group: %w", m.result.Status.Err)
		}
		remaining--
		if m.placed {
			placed++
		}
		feasible = g.PlacementFeasible(g.group, placed, remaining)
		switch feasible.Code {
		case framework.Error:
			return groupError("failed to evaluate placement feasibility: %w", feasible.Err)
		case framework.Unschedulable:
			return ofStatus(feasible)
		}
		found = found || m.placed
	}
	switch {
	case feasible.Code == framework.Wait:
		return refused(feasible.Reason)
	case !found:
		return refused()
	}
	return ofStatus(feasible)
}

// tryMember finds a node for a pod, places it there and runs Reserve.
func (g *groupAttempt) tryMember(m *groupMember) {
	c := g.cycle
	row, status := g.schedulePod(g.Profile, m.pod)
	if m.tried = true; g.keepsCycles {
		m.cycle = c.Clone()
	}
	switch {
	case row != nodetable.NoRow:
		m.assignment, m.row = framework.Assignment{Pod: m.pod, Node: g.Table.Node(row), State: c.State}, row
		g.Table.Place(m.pod, row)
		if status := g.Reserve(m.assignment); !status.OK() {
			g.Table.Displace(m.pod.UID)
			m.result = rejected(status)
			m.result.Nomination = cleared
			return
		}
		m.placed, m.nominated = true, g.Nominator.Node(m.pod.UID)
		g.Nominator.Clear(m.pod.UID)
	case status.Code == framework.Error:
		m.result = Result{Status: status, Message: status.Message(), Nomination: cleared}
	case g.Table.Len() == 0:
		m.result = Result{Status: status, Rejectors: g.FilterPlugins(), Message: framework.NoNodes, Nomination: cleared}
	default:
		rejectors, pending := c.Rejectors()
		m.result = Result{Status: framework.Status{Code: framework.Unschedulable}, Rejectors: rejectors, Pending: pending, Message: c.Message(framework.Status{})}
	}
}

func (g *groupAttempt) undo(members []*groupMember, retried bool) {
	for _, m := range slices.Backward(members) {
		if m.placed {
			undone := m.assignment
			undone.Retried = retried
			g.Unreserve(undone)
			if m.nominated != "" {
				g.Nominator.Nominate(m.pod, m.nominated)
			}
		}
	}
	g.Table.Undo()
}

// complete gives the pods that were not tried the status of the group.
func (g *groupAttempt) complete(status podGroupStatus) {
	for _, m := range g.members {
		if !m.placed && !m.tried {
			m.result = Result{Status: status.Status, Message: status.message()}
		}
	}
}

// postFilter looks for victims that make room for the group.
func (g *groupAttempt) postFilter(status podGroupStatus) (framework.PodGroupNomination, podGroupStatus) {
	a := &framework.PodGroupAttempt{Table: g.Table, Group: g.group, Now: g.now.Add(g.ClockOffset), Schedule: g.tryAgain, Evaluate: g.evaluate, Fits: g.fits}
	for _, m := range g.members {
		a.Pods = append(a.Pods, m.pod)
	}
	nomination, post := g.PodGroupPostFilter(a)
	if post.Code == framework.Error {
		return nomination, podGroupStatus{Status: post}
	}
	status.reasons = append(status.reasons, post.Reason)
	status.preempts = post.OK()
	return nomination, status
}

// tryAgain tries the group on the table as it is now.
func (g *groupAttempt) tryAgain() (placements []framework.Placement, status framework.Status) {
	members := membersOf(g.entry)
	result := g.try(members)
	if result.Code != framework.Success {
		return nil, framework.Status{Code: result.Code, Reason: strings.Join(result.reasons, ", "), Err: result.Err}
	}
	for _, m := range members {
		if m.placed {
			placements = append(placements, framework.Placement{Pod: m.pod, Row: m.row})
		}
	}
	return placements, framework.Status{}
}

func (g *groupAttempt) evaluate(pod *nodetable.Pod) *framework.Cycle {
	c := g.cycle
	if status := g.Begin(c, g.Table, pod, g.nominatedPods()); status.OK() {
		g.FilterAll(c)
	}
	return c
}

func (g *groupAttempt) fits(p framework.Placement) (bool, error) {
	if status := g.Begin(g.cycle, g.Table, p.Pod, g.nominatedPods()); !status.OK() {
		return false, status.Err
	}
	fits, _, status := g.cycle.Fits(p.Row)
	return fits, status.Err
}

// commit assumes the pods on their nodes: all of them run Reserve before the first one
// runs Permit.
func (g *groupAttempt) commit() (scheduled []*Attempt) {
	for _, m := range g.members {
		if !m.placed {
			continue
		}
		if status := g.reserveAgain(m); !status.OK() {
			m.placed, m.result = false, rejected(status)
			m.result.Nomination = cleared
		}
	}
	for _, m := range g.members {
		if !m.placed {
			continue
		}
		a := m.attempt()
		r := g.permit(g.Profile, m.assignment, g.now)
		g.assumed(g.now, a, r)
		switch a.Outcome {
		case Scheduled:
			scheduled = append(scheduled, a)
		case Waiting:
		default:
			m.placed, m.result = false, r
		}
	}
	return scheduled
}

// reserveAgain filters the node that a pod found, because Reserve uses what the plugins found last,
// and runs Reserve.
func (g *groupAttempt) reserveAgain(m *groupMember) framework.Status {
	fits, err := g.fits(framework.Placement{Pod: m.pod, Row: m.row})
	switch {
	case err != nil:
		return framework.AsStatus(err)
	case !fits:
		return framework.AsStatus(fmt.Errorf("node %s no longer fits", m.assignment.Node.Name.Value()))
	}
	return g.reserve(g.Profile, m.assignment, m.row)
}

func (m *groupMember) attempt() *Attempt {
	return &Attempt{Entry: m.entry, Pod: m.pod, Number: m.entry.Attempts, Cycle: m.cycle}
}

// end returns the pods without a node to the queue, reports the condition of the group,
// and preempts the victims. attempted is the code of the attempt before preemption;
// nil: there was none.
func (g *groupAttempt) end(attempted *framework.Code, status podGroupStatus, nomination framework.PodGroupNomination) {
	result := &PodGroupResult{Entry: g.entry, Group: g.group, Condition: g.condition(status), Victims: nomination.Victims}
	for _, m := range g.members {
		result.pods = append(result.pods, m.pod.UID)
		if m.placed && status.Code == framework.Success {
			result.Scheduled++
			continue
		}
		result.Unscheduled++
		a := m.attempt()
		r := g.failure(m, status, nomination)
		a.Message = r.Message
		g.handleSchedulingFailure(g.now, a, r)
	}
	g.callbacks.PodGroupEnded(result)
	code := status.Code
	if attempted != nil {
		code = *attempted
	}
	g.Queue.EndPodGroup(g.now, g.entry, code)
	if len(nomination.Victims) == 0 {
		return
	}
	for uid, node := range nomination.Nodes {
		g.setNominationDeadline(g.now, uid, node, nomination.Victims)
	}
	g.callbacks.Preempt(&Attempt{Entry: g.entry, Pod: g.entry.Pod, Number: g.entry.Attempts, Nominated: "cluster", Victims: nomination.Victims, Violations: nomination.Violations})
}

// failure is the result for a pod that gets no node. Source: kube-scheduler's
// submitPodGroupAlgorithmResult.
func (g *groupAttempt) failure(m *groupMember, status podGroupStatus, nomination framework.PodGroupNomination) Result {
	r := m.result
	switch {
	case status.Code == framework.Error:
		if r.Status.Code != framework.Error {
			r = Result{Status: status.Status, Message: status.message()}
		}
		r.Nomination = cleared
		return r
	case m.placed && status.preempts:
		r = Result{Status: status.Status, Message: status.message()}
	case m.placed:
		r = Result{Status: status.Status, Message: podGroupUnschedulable + ", " + status.message(), Nomination: cleared}
	}
	if node, found := nomination.Nodes[m.pod.UID]; found {
		r.Nomination.Decided = true
		if row := g.Table.Row(nodetable.Intern(node)); row != nodetable.NoRow {
			r.Nomination.Node = g.Table.Node(row)
		}
	}
	return r
}

func (g *groupAttempt) condition(status podGroupStatus) metav1.Condition {
	c := metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionFalse, Message: status.message(), ObservedGeneration: g.group.Generation}
	switch {
	case status.Code == framework.Success:
		c.Status, c.Reason = metav1.ConditionTrue, "Scheduled"
	case status.Code.Rejected():
		c.Reason = schedulingv1beta1.PodGroupReasonUnschedulable
	default:
		c.Reason = schedulingv1beta1.PodGroupReasonSchedulerError
	}
	return c
}

// allowGroup allows the pods of a group that wait at Permit, if minCount pods of it
// have nodes now.
func (s *Scheduler) allowGroup(key nodetable.PodGroupKey) (allowed []*Attempt) {
	group := s.Queue.PodGroup(key)
	if group == nil || group.Spec.SchedulingPolicy.Gang != nil && s.Table.PodGroupSize(key) < int(group.Spec.SchedulingPolicy.Gang.MinCount) {
		return nil
	}
	var waiting []types.UID
	for pod, plugins := range s.WaitingPods() {
		if slices.Contains(plugins, framework.GangScheduling) && nodetable.PodGroupOf(pod.Object) == key {
			waiting = append(waiting, pod.UID)
		}
	}
	for _, uid := range waiting {
		if a := s.Allow(uid, framework.GangScheduling); a != nil {
			allowed = append(allowed, a)
		}
	}
	return allowed
}

// PodGroup finds a PodGroup; nil: there is none.
func (s *Scheduler) PodGroup(key nodetable.PodGroupKey) *schedulingv1beta1.PodGroup {
	return s.Queue.PodGroup(key)
}

// PodGroupPods is the number of the pods of a group, with a node or without.
func (s *Scheduler) PodGroupPods(key nodetable.PodGroupKey) int {
	n := s.Table.PodGroupSize(key)
	for uid := range s.Queue.PodsOfGroup(key) {
		if pod, _ := s.Table.Find(uid); pod == nil {
			n++
		}
	}
	return n
}

// AddPod adds a pod without a node to the queue. Another pod of its group may wait for
// it.
func (s *Scheduler) AddPod(now time.Time, pod *nodetable.Pod) {
	s.Queue.Add(now, pod)
	if s.podGroups {
		s.Queue.MoveAllToActiveOrBackoff(now, &framework.Occurrence{Event: framework.Event{Resource: framework.UnscheduledPod, Action: framework.Add}, Pod: pod})
	}
}

// SetPodGroup adds or updates a PodGroup.
func (s *Scheduler) SetPodGroup(now time.Time, group *schedulingv1beta1.PodGroup) {
	o := framework.Occurrence{Event: framework.Event{Resource: framework.PodGroupResource, Action: framework.Add}, Object: group}
	if old := s.Queue.PodGroup(nodetable.PodGroupKey{Namespace: group.Namespace, Name: group.Name}); old != nil {
		o.Action, o.OldObject = framework.Update, old
	}
	s.Queue.SetPodGroup(now, group)
	s.Queue.MoveAllToActiveOrBackoff(now, &o)
}
