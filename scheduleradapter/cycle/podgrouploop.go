package cycle

import (
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// PodGroupEnded patches the condition PodGroupInitiallyScheduled. What is True remains
// True: later pods of the group do not change it.
func (l *Loop) PodGroupEnded(r *PodGroupResult) {
	if len(r.Victims) > 0 { // gates the group from EndPodGroup until Preempt has started the deletions
		l.preemptions[r.Group.UID] = &preemption{preemptor: r.Group.UID, group: r.pods, tasks: 1}
	}
	l.cfg.Log.Info("attempt of pod group ended", "podGroup", r.Group.Namespace+"/"+r.Group.Name, "attempt", r.Attempts,
		"scheduled", r.Scheduled, "unscheduled", r.Unscheduled, "victims", len(r.Victims), "reason", r.Condition.Reason, "message", r.Condition.Message)
	if r.Condition.Status == metav1.ConditionTrue {
		l.scheduledGroups[r.Group.UID] = true
	} else if l.scheduledGroups[r.Group.UID] || meta.IsStatusConditionTrue(r.Group.Status.Conditions, r.Condition.Type) {
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
	delete(l.scheduledGroups, group.UID)
	l.Queue.RemovePodGroup(nodetable.PodGroupKey{Namespace: group.Namespace, Name: group.Name})
	l.handleClusterEvent(framework.Occurrence{Event: framework.Event{Resource: framework.PodGroupResource, Action: framework.Delete}, OldObject: group})
}
