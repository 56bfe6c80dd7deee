package cycle

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// PodGroupEnded patches the condition PodGroupInitiallyScheduled. What is True remains
// True: later pods of the group do not change it.
func (l *Loop) PodGroupEnded(r *PodGroupResult) {
	if len(r.Victims) > 0 { // gates the group from EndPodGroup until Preempt has started the deletions
		p := &preemption{preemptor: r.Entry.Pod.UID, tasks: 1}
		p.group = make([]types.UID, len(r.Members))
		for i, member := range r.Members {
			p.group[i] = member.Pod.UID
		}
		l.preemptions[p.preemptor] = p
	}
	l.cfg.Log.Info("attempt of pod group ended", "podGroup", r.Group.Namespace+"/"+r.Group.Name, "attempt", r.Attempts,
		"scheduled", r.Scheduled, "unscheduled", r.Unscheduled, "victims", len(r.Victims), "reason", r.Condition.Reason, "message", r.Condition.Message)
	old := meta.FindStatusCondition(r.Group.Status.Conditions, r.Condition.Type)
	if old != nil && old.Status == metav1.ConditionTrue && r.Condition.Status != metav1.ConditionTrue {
		return
	}
	l.cfg.API.PatchPodGroup(r.Group, r.Condition)
}

// SetPodGroup adds or updates a PodGroup.
func (l *Loop) SetPodGroup(group *schedulingv1beta1.PodGroup) {
	l.Scheduler.SetPodGroup(l.now(), group)
}

// RemovePodGroup removes a PodGroup.
func (l *Loop) RemovePodGroup(group *schedulingv1beta1.PodGroup) {
	l.Queue.RemovePodGroup(nodetable.PodGroupKey{Namespace: group.Namespace, Name: group.Name})
	l.handleClusterEvent(framework.Occurrence{Event: framework.Event{Resource: framework.PodGroupResource, Action: framework.Delete}, OldObject: group})
}
