package volumes

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// RestrictionsName is the name of the plugin Restrictions.
const RestrictionsName = "VolumeRestrictions"

// RestrictionsRegistration of the plugin RestrictionsName.
func (s *Storage) RestrictionsRegistration() framework.Registration {
	return framework.Register[*Restrictions](RestrictionsName, s.NewRestrictions)
}

// Restrictions is VolumeRestrictions: no two pods of a node write one disk, and no
// two of the cluster use a claim that is for one pod.
type Restrictions struct {
	*Storage
	exclusive []nodetable.Symbol // claims of the pod that are for one pod
}

// NewRestrictions makes the plugin; it takes no arguments.
func (s *Storage) NewRestrictions(any, framework.Env) (framework.Plugin, error) {
	return &Restrictions{Storage: s}, nil
}

// Name of the plugin.
func (*Restrictions) Name() string { return RestrictionsName }

const (
	noDisk uint32 = iota
	usedByAnotherPod
)

// PreFilter skips pods without disks whose claims nobody else uses that must not.
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

// inUse says whether a pod anywhere uses one of the claims for one pod.
func (r *Restrictions) inUse() bool {
	return slices.ContainsFunc(r.exclusive, func(claim nodetable.Symbol) bool { return len(r.table.Users(claim)) > 0 })
}

// Filter takes out nodes where another pod has a disk of the pod's, and all nodes
// where it has to wait for a claim.
func (r *Restrictions) Filter(c *framework.Cycle) framework.Status {
	for i := range c.Pod.Disks {
		for _, use := range r.table.Users(c.Pod.Disks[i].ID) {
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

// Reasons says what is taken.
func (*Restrictions) Reasons(_ *nodetable.Pod, reason uint32) []string {
	return []string{[...]string{
		noDisk:           "node(s) had no available disk",
		usedByAnotherPod: "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
	}[reason]}
}

// exclude says whether two pods may not be on one node for their disks.
func exclude(a, b *nodetable.Pod) bool {
	return slices.ContainsFunc(a.Disks, func(d nodetable.Disk) bool {
		return d.ID != (nodetable.Symbol{}) && slices.ContainsFunc(b.Disks, func(e nodetable.Disk) bool { return d.ID == e.ID && conflict(d.Source, e.Source) })
	})
}

// conflict is about two disks of the same ID: they are one for both pods, which
// does where both only read, but for EBS. RBD images of the same name are one
// where they share a monitor.
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

// Events that may help: a pod that used the same is gone, a node came, a claim came.
func (*Restrictions) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, Hint: userLeft},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add}},
		{Event: framework.Event{Resource: framework.PersistentVolumeClaim, Action: framework.Add}, Hint: lastingClaimChanged},
	}
}

func userLeft(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	return queueIf(exclude(pod, o.OldPod) || slices.ContainsFunc(pod.Claims, func(c nodetable.Claim) bool { return slices.Contains(o.OldPod.Claims, c) }))
}

// lastingClaimChanged queues pods that use the claim, unless it is made for them.
func lastingClaimChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	object, err := now[*v1.PersistentVolumeClaim](o)
	if err != nil {
		return framework.Queue, err
	}
	used := claimOf(pod, object)
	return queueIf(used != nil && !used.Ephemeral)
}

// claimChanged queues pods that use the claim.
func claimChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	object, err := now[*v1.PersistentVolumeClaim](o)
	if err != nil {
		return framework.Queue, err
	}
	return queueIf(claimOf(pod, object) != nil)
}

// claimOf is a pod's use of a claim; nil where it does not use it.
func claimOf(pod *nodetable.Pod, object *v1.PersistentVolumeClaim) *nodetable.Claim {
	key := nodetable.ClaimKey(object.Namespace, object.Name)
	if i := slices.IndexFunc(pod.Claims, func(c nodetable.Claim) bool { return c.Key == key }); i >= 0 {
		return &pod.Claims[i]
	}
	return nil
}
