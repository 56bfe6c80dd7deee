package nodetable

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Claim is a PersistentVolumeClaim that a pod uses.
type Claim struct {
	// Key is namespace/name.
	Key  Symbol
	Name string
	// Ephemeral says that the claim is made for the pod and goes with it.
	Ephemeral bool
}

// Disk is a volume that the pod itself names, of a kind that is attached to the
// node.
type Disk struct {
	// ID is the same for volumes that may be the same disk, which must not be
	// written from two pods; zero for kinds that know no such rule.
	ID     Symbol
	Source *v1.VolumeSource
}

// ClaimKey is the Key of a claim.
func ClaimKey(namespace, name string) Symbol { return Intern(namespace + "/" + name) }

func (p *Pod) digestVolumes(pod *v1.Pod) {
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

// diskID names a disk. No claim has such a name: namespaces begin with a letter
// or digit.
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

// Users are the rows with pods that use a claim, by its Key, or a disk, by its
// ID, ascending. It is good until the next change and must not be changed.
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

// Nodes is the set of nodes a selector means, in the memory of into where that
// suffices: Select for selectors of which there are many, whose sets the caller
// keeps.
func (t *Table) Nodes(s *NodeSelector, into Bits) Bits {
	into = into.Copied(t.alive)
	if s == nil {
		return into
	}
	return t.evaluate(s, into)
}
