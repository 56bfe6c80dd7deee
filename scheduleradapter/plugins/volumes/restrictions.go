package volumes

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const RestrictionsName = "VolumeRestrictions"

// Restrictions is VolumeRestrictions: pods on a node do not share a writable disk,
// and a ReadWriteOncePod claim has one pod.
type Restrictions struct {
	*Storage
	exclusive []nodetable.Symbol // ReadWriteOncePod claims of the pod
}

func (s *Storage) NewRestrictions(any, framework.Env) (framework.Plugin, error) {
	return &Restrictions{Storage: s}, nil
}

func (*Restrictions) Name() string { return RestrictionsName }

const (
	noDisk uint32 = iota
	usedByAnotherPod
)

// PreFilter skips pods without disks whose ReadWriteOncePod claims are not in use.
func (r *Restrictions) PreFilter(c *framework.Cycle) framework.Status {
	r.exclusive = r.exclusive[:0]
	for _, used := range c.Pod.Claims {
		if used.Ephemeral {
			continue
		}
		object := r.claim(used.Key)
		if object == nil {
			return unresolvable(notFound("persistentvolumeclaim", used.Name))
		}
		if slices.Contains(object.Spec.AccessModes, v1.ReadWriteOncePod) {
			r.exclusive = append(r.exclusive, used.Key)
		}
	}
	disks := slices.ContainsFunc(c.Pod.Disks, func(d nodetable.Disk) bool { return d.ID != (nodetable.Symbol{}) })
	if !disks && !r.inUse() {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

func unresolvable(err error) framework.Status {
	return framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: err.Error()}
}

func (r *Restrictions) inUse() bool {
	return slices.ContainsFunc(r.exclusive, func(claim nodetable.Symbol) bool { return r.table.Users(claim).Len() > 0 })
}

// Filter rejects nodes with a conflicting disk, and all nodes while a
// ReadWriteOncePod claim is in use.
func (r *Restrictions) Filter(c *framework.Cycle) framework.Status {
	for i := range c.Pod.Disks {
		for use := range r.table.Users(c.Pod.Disks[i].ID).Rows() {
			if c.Feasible.Has(use.Row) && slices.ContainsFunc(r.table.PodsOn(use.Row), func(p *nodetable.Pod) bool { return exclude(c.Pod, p) }) {
				c.Reject(use.Row, noDisk, false)
			}
		}
	}
	if r.inUse() {
		c.RejectAll(c.Table.Alive(), usedByAnotherPod, false)
	}
	return framework.Status{}
}

func (*Restrictions) Reasons(_ *nodetable.Pod, reason uint32) []string {
	return []string{[...]string{
		noDisk:           "node(s) had no available disk",
		usedByAnotherPod: "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
	}[reason]}
}

// exclude reports whether the disks of two pods conflict.
func exclude(a, b *nodetable.Pod) bool {
	return slices.ContainsFunc(a.Disks, func(d nodetable.Disk) bool {
		return d.ID != (nodetable.Symbol{}) && slices.ContainsFunc(b.Disks, func(e nodetable.Disk) bool { return d.ID == e.ID && conflict(d.Source, e.Source) })
	})
}

// conflict reports whether two disks of the same ID conflict: not if both are
// read-only, except for EBS; RBD images conflict if they share a monitor.
func conflict(a, b *v1.VolumeSource) bool {
	switch {
	case a.GCEPersistentDisk != nil:
		return !a.GCEPersistentDisk.ReadOnly || !b.GCEPersistentDisk.ReadOnly
	case a.ISCSI != nil:
		return !a.ISCSI.ReadOnly || !b.ISCSI.ReadOnly
	case a.RBD != nil:
		return (!a.RBD.ReadOnly || !b.RBD.ReadOnly) &&
			slices.ContainsFunc(a.RBD.CephMonitors, func(monitor string) bool { return slices.Contains(b.RBD.CephMonitors, monitor) })
	}
	return true
}

// Events are: a pod with the same disk or claim was deleted, a node or a claim was
// added.
func (*Restrictions) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, Hint: userLeft},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add}},
		{Event: framework.Event{Resource: framework.PersistentVolumeClaim, Action: framework.Add}, Hint: claimChanged(false)},
	}
}

func userLeft(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	return queueIf(exclude(pod, o.OldPod) || slices.ContainsFunc(pod.Claims, func(c nodetable.Claim) bool { return slices.Contains(o.OldPod.Claims, c) }))
}

// claimChanged makes a hint that returns Queue for pods that use the claim, also as an
// ephemeral volume or not.
func claimChanged(ephemeral bool) func(*framework.Occurrence, *nodetable.Pod) (framework.Hint, error) {
	return func(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
		object, err := now[*v1.PersistentVolumeClaim](o)
		if err != nil {
			return framework.Queue, err
		}
		used := claimOf(pod, object)
		return queueIf(used != nil && (ephemeral || !used.Ephemeral))
	}
}

// claimOf is the use of a claim by a pod; nil: none.
func claimOf(pod *nodetable.Pod, object *v1.PersistentVolumeClaim) *nodetable.Claim {
	key := nodetable.ClaimKey(object.Namespace, object.Name)
	if i := slices.IndexFunc(pod.Claims, func(c nodetable.Claim) bool { return c.Key == key }); i >= 0 {
		return &pod.Claims[i]
	}
	return nil
}
