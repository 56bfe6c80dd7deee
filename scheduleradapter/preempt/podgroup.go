package preempt

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// unit is what is preempted as a whole: a pod, or the pods of a group whose
// disruptionMode is all.
type unit struct {
	pods       []*nodetable.Pod
	rows       []nodetable.Row
	priority   int32
	grouped    bool // the pods name a PodGroup
	violations int  // pods that a budget protects
}

func (u *unit) started() int64 {
	first := int64(math.MaxInt64)
	for _, pod := range u.pods {
		first = min(first, started(pod))
	}
	return first
}

// byUnitImportance orders units: by priority, groups before pods, by size, by start,
// by name. Source: kube-scheduler's MoreImportantVictim.
func byUnitImportance(a, b *unit) int {
	grouped := map[bool]int{true: 1}
	return cmp.Or(
		cmp.Compare(b.priority, a.priority),
		cmp.Compare(grouped[b.grouped], grouped[a.grouped]),
		cmp.Compare(len(b.pods), len(a.pods)),
		cmp.Compare(a.started(), b.started()),
		strings.Compare(a.pods[0].String(), b.pods[0].String()),
	)
}

// groupSearch is a search for the victims of a pod group in the whole cluster.
type groupSearch struct {
	*framework.PodGroupAttempt
	plugin     *Plugin
	priority   int32
	placements []framework.Placement
}

// PodGroupPostFilter finds the pods of lower priority whose removal makes room for the
// group. Source: kube-scheduler's PodGroupEvaluator.
func (p *Plugin) PodGroupPostFilter(a *framework.PodGroupAttempt) (framework.PodGroupNomination, framework.Status) {
	s := &groupSearch{PodGroupAttempt: a, plugin: p, priority: ptr.Deref(a.Group.Spec.Priority, 0)}
	n, status := s.run()
	switch {
	case status.Err != nil:
		status.Err = fmt.Errorf("pod group preemption: %w", status.Err)
	case status.Reason != "":
		status.Reason = "pod group preemption: " + status.Reason
	}
	return n, status
}

func (s *groupSearch) run() (framework.PodGroupNomination, framework.Status) {
	nomination := framework.PodGroupNomination{Nodes: map[types.UID]string{}}
	for _, pod := range s.Pods {
		if policy := pod.Object.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
			return nomination, framework.Status{Code: framework.Unschedulable, Reason: "not eligible due to preemptionPolicy=Never."}
		}
	}
	if s.isOngoing() {
		for _, pod := range s.Pods {
			nomination.Nodes[pod.UID] = pod.Object.Status.NominatedNodeName
		}
		return nomination, framework.Status{Reason: "ongoing preemption on nominated nodes"}
	}
	units := s.units()
	if len(units) == 0 {
		return nomination, framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: "No preemption victims found for incoming preemptor"}
	}
	s.Table.Try()
	defer s.Table.Undo()
	for _, u := range units {
		for _, pod := range u.pods {
			s.Table.Displace(pod.UID)
		}
	}
	placements, status := s.Schedule()
	if !status.OK() {
		return nomination, status
	}
	s.placements = placements
	victims, err := s.reprieve(units)
	if err != nil {
		return nomination, framework.AsStatus(err)
	}
	for _, u := range victims {
		nomination.Victims = append(nomination.Victims, u.pods...)
		nomination.Violations += u.violations
	}
	for _, placement := range placements {
		nomination.Nodes[placement.Pod.UID] = s.Table.Node(placement.Row).Name.Value()
	}
	return nomination, framework.Status{Reason: fmt.Sprintf("found a placement for podgroup, preempting %d victims", len(nomination.Victims))}
}

// isOngoing reports whether a victim terminates on a node that is nominated for a pod
// of the group.
func (s *groupSearch) isOngoing() bool {
	for _, preemptor := range s.Pods {
		row := s.Table.Row(nodetable.Intern(preemptor.Object.Status.NominatedNodeName))
		if row == nodetable.NoRow {
			continue
		}
		for _, pod := range s.Table.PodsOn(row) {
			if s.plugin.priorityOf(pod) < s.priority && pod.Terminating && wasPreempted(pod.Object) {
				return true
			}
		}
	}
	return false
}

// groupOf is the PodGroup of a pod; nil: it has none.
func (p *Plugin) groupOf(pod *nodetable.Pod) *schedulingv1beta1.PodGroup {
	if p.env.PodGroups == nil || pod.Object.Spec.SchedulingGroup == nil {
		return nil
	}
	return p.env.PodGroups.PodGroup(nodetable.PodGroupOf(pod.Object))
}

// priorityOf is the priority of a victim: that of its PodGroup, if it has one.
func (p *Plugin) priorityOf(pod *nodetable.Pod) int32 {
	if group := p.groupOf(pod); group != nil {
		return ptr.Deref(group.Spec.Priority, 0)
	}
	return pod.Priority
}

// units are the possible victims, the most important first.
func (s *groupSearch) units() (units []*unit) {
	whole := map[nodetable.PodGroupKey]*unit{}
	for row, pod := range s.Table.AllPods() {
		priority := s.plugin.priorityOf(pod)
		if priority >= s.priority {
			continue
		}
		group, key := s.plugin.groupOf(pod), nodetable.PodGroupOf(pod.Object)
		u := whole[key]
		if isWhole := group != nil && group.Spec.DisruptionMode != nil && group.Spec.DisruptionMode.All != nil; u == nil || !isWhole {
			u = &unit{priority: priority, grouped: pod.Object.Spec.SchedulingGroup != nil}
			units = append(units, u)
			if isWhole {
				whole[key] = u
			}
		}
		u.pods, u.rows = append(u.pods, pod), append(u.rows, row)
	}
	slices.SortFunc(units, byUnitImportance)
	return units
}

// reprieve keeps as many units as possible, first those that a budget protects, and
// returns the others.
func (s *groupSearch) reprieve(units []*unit) (victims []*unit, err error) {
	budgets := newBudgets(s.plugin)
	var others []*unit
	protected := []*unit{}
	for _, u := range units {
		for _, pod := range u.pods {
			if budgets.violates(pod) {
				u.violations++
			}
		}
		if u.violations > 0 {
			protected = append(protected, u)
		} else {
			others = append(others, u)
		}
	}
	for _, u := range append(protected, others...) {
		fits, err := s.fitsWith(u)
		if err != nil {
			return nil, err
		}
		if fits {
			s.place(u)
		} else {
			victims = append(victims, u)
		}
	}
	slices.SortFunc(victims, byUnitImportance)
	return victims, nil
}

func (s *groupSearch) place(u *unit) {
	for i, pod := range u.pods {
		s.Table.Place(pod, u.rows[i])
	}
}

// fitsWith reports whether the group still fits on its nodes if a unit remains.
func (s *groupSearch) fitsWith(u *unit) (bool, error) {
	s.Table.Try()
	defer s.Table.Undo()
	s.place(u)
	for _, placement := range s.placements {
		if fits, err := s.Fits(placement); !fits || err != nil {
			return false, err
		}
		s.Table.Place(placement.Pod, placement.Row)
	}
	return true, nil
}
