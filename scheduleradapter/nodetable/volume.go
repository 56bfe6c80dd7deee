package nodetable

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Claim is the use of a PersistentVolumeClaim by a pod.
type Claim struct {
	// Key is namespace/name.
	Key  Symbol
	Name string
	// Ephemeral: the claim belongs to a generic ephemeral volume of the pod.
	Ephemeral bool
}

// Disk is an attachable volume in the pod's spec.
type Disk struct {
	// ID is equal for volumes that may be the same disk, which only one pod may
	// write; zero: there is no such rule.
	ID     Symbol
	Source *v1.VolumeSource
}

func ClaimKey(namespace, name string) Symbol { return Intern(namespace + "/" + name) }

func (p *PodTemplate) digestVolumes(pod *v1.Pod) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			name := v.PersistentVolumeClaim.ClaimName
			p.Claims = append(p.Claims, Claim{Key: ClaimKey(pod.Namespace, name), Name: name})
		case v.Ephemeral != nil:
			name := ephemeral.VolumeClaimName(pod, v)
			p.Claims = append(p.Claims, Claim{ClaimKey(pod.Namespace, name), name, true})
		default:
			if id, is := diskID(&v.VolumeSource); is {
				p.Disks = append(p.Disks, Disk{id, &v.VolumeSource})
			}
		}
	}
}

// diskID names a disk. It differs from all claim keys, because namespaces start
// with a letter or digit.
func diskID(s *v1.VolumeSource) (id Symbol, is bool) {
	switch {
	case s.GCEPersistentDisk != nil:
		return Intern("\x00gce/" + s.GCEPersistentDisk.PDName), true
	case s.AWSElasticBlockStore != nil:
		return Intern("\x00ebs/" + s.AWSElasticBlockStore.VolumeID), true
	case s.ISCSI != nil:
		return Intern("\x00iscsi/" + s.ISCSI.IQN), true
	case s.RBD != nil:
		return Intern(fmt.Sprintf("\x00rbd/%q/%q", s.RBD.RBDPool, s.RBD.RBDImage)), true
	case s.AzureDisk != nil, s.AzureFile != nil, s.Cinder != nil, s.PortworxVolume != nil, s.VsphereVolume != nil:
		return Symbol{}, true
	}
	return Symbol{}, false
}

// Users are the rows with pods that use a claim or disk, ascending. It is valid
// until the next change and must not be changed.
func (t *Table) Users(volume Symbol) []RowCount {
	if use := t.users[volume]; use != nil {
		return use.rows
	}
	return nil
}

func (t *Table) useVolumes(p *Pod, row Row, n int32) {
	for i := range p.Claims {
		t.useVolume(p.Claims[i].Key, row, n)
	}
	for i := range p.Disks {
		if id := p.Disks[i].ID; id != (Symbol{}) {
			t.useVolume(id, row, n)
		}
	}
}

func (t *Table) useVolume(volume Symbol, row Row, n int32) {
	use := t.users[volume]
	if use == nil {
		use = &Tally{}
		t.users[volume] = use
	}
	if use.add(row, n); use.total == 0 {
		delete(t.users, volume)
	}
}

// Nodes is the set of matching nodes, in the memory of into. It is not cached.
func (t *Table) Nodes(s *NodeSelector, into Bits) Bits {
	into = into.Copied(t.alive)
	if s == nil {
		return into
	}
	return t.evaluate(s, into)
}
