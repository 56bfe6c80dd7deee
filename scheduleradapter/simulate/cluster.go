package simulate

import (
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/lifecycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// newest is the start of the simulation: the latest timestamp in the manifests.
func newest(objects *Objects) time.Time {
	latest := time.Unix(0, 0).UTC()
	happened := func(at metav1.Time) {
		if at.After(latest) {
			latest = at.UTC()
		}
	}
	for _, node := range objects.Nodes {
		happened(node.CreationTimestamp)
		for i := range node.Spec.Taints {
			if added := node.Spec.Taints[i].TimeAdded; added != nil {
				happened(*added)
			}
		}
		for i := range node.Status.Conditions {
			happened(node.Status.Conditions[i].LastHeartbeatTime)
		}
	}
	for _, lease := range objects.Leases {
		if renewed := lease.Spec.RenewTime; renewed != nil {
			happened(metav1.Time{Time: renewed.Time})
		}
	}
	for _, pod := range objects.Pods {
		happened(pod.CreationTimestamp)
		if pod.Status.StartTime != nil {
			happened(*pod.Status.StartTime)
		}
		if deletion := pod.DeletionTimestamp; deletion != nil {
			grace := int64(0)
			if pod.DeletionGracePeriodSeconds != nil {
				grace = *pod.DeletionGracePeriodSeconds
			}
			happened(metav1.Time{Time: deletion.Add(-time.Duration(grace) * time.Second)})
		}
	}
	return latest
}

// populate fills the table and the queue. Pods of other schedulers and terminating
// pods are not queued.
func (s *Simulation) populate() error {
	for _, namespace := range s.objects.Namespaces {
		s.Table.SetNamespace(namespace.Name, nodetable.NewLabels(namespace.Labels))
	}
	for _, budget := range s.objects.DisruptionBudgets {
		s.Table.SetBudget(nodetable.NewBudget(budget))
	}
	for _, node := range s.objects.Nodes {
		s.Table.SetNode(nodetable.NewNode(node))
	}
	s.populateGroups()
	s.populateStorage()
	if err := s.populateHeadroom(); err != nil {
		return err
	}
	s.populateDevices()
	if s.PodGroups {
		for _, group := range s.objects.PodGroups {
			s.SetPodGroup(s.now, group)
		}
	}
	s.queuePods(s.placePods())
	s.monitorNodes()
	return nil
}

func (s *Simulation) populateGroups() {
	set := func(object metav1.Object, apiVersion, kind string, selector *metav1.LabelSelector) {
		s.Table.SetGroup(object.GetNamespace(), nodetable.Group{APIVersion: apiVersion, Kind: kind, Name: object.GetName()}, selector)
	}
	for _, o := range s.objects.Services {
		set(o, "v1", "Service", matching(o.Spec.Selector))
	}
	for _, o := range s.objects.ReplicationControllers {
		set(o, "v1", "ReplicationController", matching(o.Spec.Selector))
	}
	for _, o := range s.objects.ReplicaSets {
		set(o, "apps/v1", "ReplicaSet", o.Spec.Selector)
	}
	for _, o := range s.objects.StatefulSets {
		set(o, "apps/v1", "StatefulSet", o.Spec.Selector)
	}
}

func (s *Simulation) populateStorage() {
	each(s.objects.StorageClasses, s.stores.Volumes.SetClass)
	each(s.objects.Volumes, s.stores.Volumes.SetVolume)
	each(s.objects.Claims, s.stores.Volumes.SetClaim)
	each(s.objects.CSINodes, s.stores.Volumes.SetNode)
	each(s.objects.CSIDrivers, s.stores.Volumes.SetDriver)
	each(s.objects.StorageCapacities, s.stores.Volumes.SetCapacity)
	each(s.objects.Attachments, s.stores.Volumes.SetAttachment)
}

// populateHeadroom adds the headroom of nodes. A Lease that is valid at the start
// remains valid.
func (s *Simulation) populateHeadroom() error {
	var faults []error
	for _, lease := range s.objects.Leases {
		node, headroom, err := nodetable.NewHeadroom(lease)
		faults = append(faults, err)
		if headroom != nil && s.start.Before(headroom.Until) {
			headroom.Until = s.start.AddDate(100, 0, 0)
			s.Table.SetHeadroom(nodetable.Intern(node), headroom)
		}
	}
	return errors.Join(faults...)
}

func each[T any](objects []T, set func(T)) {
	for _, o := range objects {
		set(o)
	}
}

// matching is a selector by labels; nil: there are none.
func matching(labels map[string]string) *metav1.LabelSelector {
	if len(labels) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: labels}
}

// placePods places the assigned pods and returns the pending ones.
func (s *Simulation) placePods() (pending []*nodetable.Pod) {
	for _, pod := range s.objects.digests {
		switch object := pod.Object; {
		case object.Status.Phase == v1.PodSucceeded || object.Status.Phase == v1.PodFailed:
		case object.Spec.NodeName != "":
			s.populateRunning(pod)
		default:
			s.AddNominatedPod(s.now, pod)
			if s.ResponsibleFor(pod) && !pod.Terminating {
				pending = append(pending, pod)
			}
		}
	}
	return pending
}

// queuePods queues pods by creation, then by the order of the manifests.
func (s *Simulation) queuePods(pending []*nodetable.Pod) {
	created := func(pod *nodetable.Pod) time.Time {
		if pod.Created.IsZero() {
			return s.start
		}
		return pod.Created
	}
	slices.SortStableFunc(pending, func(a, b *nodetable.Pod) int { return created(a).Compare(created(b)) })
	for _, pod := range pending {
		s.AddPod(s.now, pod)
	}
}

func (s *Simulation) populateRunning(pod *nodetable.Pod) {
	if pod.Started.IsZero() {
		pod = running(pod, pod.Object.Spec.NodeName, s.start)
	}
	name := nodetable.Intern(pod.Object.Spec.NodeName)
	s.Table.PlaceOn(pod, name)
	if row := s.Table.Row(name); row != nodetable.NoRow && !pod.Terminating {
		s.watch(pod, s.Table.Node(row), time.Time{})
	}
}

// running is a copy of a pod that runs on a node.
func running(pod *nodetable.Pod, node string, since time.Time) *nodetable.Pod {
	pod = cycle.UpdatedPod(pod, func(object *v1.Pod) {
		object.Spec.NodeName = node
		object.Status.NominatedNodeName = ""
		object.Status.StartTime = &metav1.Time{Time: since}
	})
	pod.Started, pod.Node = since, nodetable.Intern(node)
	return pod
}

// Preempt deletes victims. A victim that waits for Permit is rejected.
func (s *Simulation) Preempt(a *cycle.Attempt) {
	for _, victim := range a.Victims {
		if s.IsWaiting(victim.UID) {
			s.summary.Preempted++
			s.Reject(s.now, victim.UID, framework.Status{Code: framework.Unschedulable, Plugin: preempt.Name, Reason: "preempted"})
		} else if s.terminate(victim, v1.PodReasonPreemptionByScheduler, ByPreemption) {
			s.summary.Preempted++
		}
	}
}

// terminate deletes a pod. It uses its node until its grace period ends. It returns
// false for a pod that is terminating or deleted.
func (s *Simulation) terminate(pod *nodetable.Pod, reason string, by Cause) bool {
	pod, row := s.Table.Find(pod.UID)
	if pod == nil || pod.Terminating {
		return false
	}
	grace := time.Duration(*pod.Object.Spec.TerminationGracePeriodSeconds) * time.Second
	deletion := s.now.Add(grace)
	terminating := cycle.TerminatingPod(pod, deletion, reason)
	s.Table.Place(terminating, row)
	name := s.Table.Node(row).Name
	s.timers.add(deletion, func() {
		s.Table.Displace(terminating.UID)
		s.stores.Devices.Controller().PodEnded(terminating.Object)
		s.report.Event(&Event{At: s.now.Sub(s.start), Kind: Deleted, Pod: terminating, Node: name.Value(), By: by})
		s.PodLeft(s.now, terminating, name)
	})
	return true
}

// watch sets the timer of the first NoExecute taint that evicts the pod, if there
// is one. The time of a taint starts at its timeAdded, or at the start of the
// simulation, and not before since.
func (s *Simulation) watch(pod *nodetable.Pod, node *nodetable.Node, since time.Time) {
	at, taint := lifecycle.EvictionTime(pod.Object.Spec.Tolerations, node.Object.Spec.Taints, func(taint *v1.Taint) time.Time {
		begin := s.start
		if taint.TimeAdded != nil {
			begin = taint.TimeAdded.Time
		}
		if since.After(begin) {
			return since
		}
		return begin
	})
	if taint == nil {
		return
	}
	if at.Before(s.now) {
		at = s.now
	}
	s.timers.add(at, func() { s.evict(pod, node.Name.Value(), taint) })
}

func (s *Simulation) evict(pod *nodetable.Pod, node string, taint *v1.Taint) {
	if now, _ := s.Table.Find(pod.UID); now == nil || now.Terminating {
		return
	}
	text := taint.Key
	if taint.Value != "" {
		text += "=" + taint.Value
	}
	s.summary.Evicted++
	s.report.Event(&Event{At: s.now.Sub(s.start), Kind: Evicted, Pod: pod, Node: node, By: ByTaint, Taint: text + ":" + string(taint.Effect)})
	s.terminate(pod, "DeletionByTaintManager", ByTaint)
}
