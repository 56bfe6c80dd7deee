// Package volumes has the plugins VolumeRestrictions, NodeVolumeLimits,
// VolumeBinding and VolumeZone.
//
// They read a Storage, which has the digested storage objects. Informers update it;
// the plugins of all profiles share it.
package volumes

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Storage has the storage objects of a cluster, with the reservations that
// informers have not reported. The goroutine that owns the table owns it.
type Storage struct {
	table       *nodetable.Table
	api         API
	claims      map[nodetable.Symbol]*claim
	volumes     map[string]*volume
	unclaimed   map[string][]*volume           // by storage class, smallest first
	claimed     map[nodetable.Symbol][]*volume // by bound claim, smallest first
	classes     map[string]*class
	nodes       map[nodetable.Symbol]*storagev1.CSINode
	drivers     map[string]*storagev1.CSIDriver
	capacityOf  map[string]*capacity   // by key
	capacities  map[string]*capacities // by storage class
	attachments map[string]*storagev1.VolumeAttachment
	// migrations changes with each CSINode, which has the CSI migration of in-tree
	// plugins.
	migrations uint64
	ledger     ledger
}

// claim is a claim with and without its reservation. They differ while a pod, by,
// has it reserved.
type claim struct {
	now, reported *v1.PersistentVolumeClaim
	by            types.UID
}

// NewStorage makes an empty Storage over the scheduler's table. PreBind uses the
// API.
func NewStorage(table *nodetable.Table, api API) *Storage {
	return &Storage{
		table: table, api: api,
		claims: map[nodetable.Symbol]*claim{}, volumes: map[string]*volume{}, unclaimed: map[string][]*volume{}, claimed: map[nodetable.Symbol][]*volume{}, classes: map[string]*class{},
		nodes: map[nodetable.Symbol]*storagev1.CSINode{}, drivers: map[string]*storagev1.CSIDriver{}, capacityOf: map[string]*capacity{}, capacities: map[string]*capacities{},
		attachments: map[string]*storagev1.VolumeAttachment{}, ledger: newLedger(),
	}
}

// isNewer reports whether an informer's version of a reserved object is new.
func isNewer(by types.UID, toldVersion, version string) bool {
	return by == "" || version == "" || version != toldVersion
}

// SetClaim adds or updates a claim.
func (s *Storage) SetClaim(object *v1.PersistentVolumeClaim) {
	key := nodetable.ClaimKey(object.Namespace, object.Name)
	if was := s.claims[key]; was != nil {
		if !isNewer(was.by, was.reported.ResourceVersion, object.ResourceVersion) {
			return
		}
		s.ledger.unname(was.reported, key)
	}
	s.claims[key] = &claim{now: object, reported: object}
	s.ledger.name(object, key)
}

func (s *Storage) RemoveClaim(namespace, name string) {
	key := nodetable.ClaimKey(namespace, name)
	if c := s.claims[key]; c != nil {
		s.ledger.unname(c.reported, key)
		delete(s.claims, key)
	}
}

// claim finds a claim with its reservation; nil: there is none.
func (s *Storage) claim(key nodetable.Symbol) *v1.PersistentVolumeClaim {
	if c := s.claims[key]; c != nil {
		return c.now
	}
	return nil
}

// SetVolume adds or updates a volume.
func (s *Storage) SetVolume(object *v1.PersistentVolume) {
	was := s.volumes[object.Name]
	if was != nil && !isNewer(was.by, was.reported.ResourceVersion, object.ResourceVersion) {
		return
	}
	v := newVolume(object)
	if was != nil {
		s.unlist(was)
	}
	s.volumes[object.Name] = v
	s.list(v)
	if was == nil || was.attachable != v.attachable {
		s.ledger.staleVolume(object.Name)
	}
}

func (s *Storage) RemoveVolume(name string) {
	if v := s.volumes[name]; v != nil {
		s.unlist(v)
		delete(s.volumes, name)
		s.ledger.staleVolume(name)
	}
}

func (s *Storage) list(v *volume) {
	if ref := v.now.Spec.ClaimRef; ref != nil {
		insert(s.claimed, nodetable.ClaimKey(ref.Namespace, ref.Name), v, bySize)
	} else {
		insert(s.unclaimed, v.class, v, bySize)
	}
}

func (s *Storage) unlist(v *volume) {
	if ref := v.now.Spec.ClaimRef; ref != nil {
		drop(s.claimed, nodetable.ClaimKey(ref.Namespace, ref.Name), v)
	} else {
		drop(s.unclaimed, v.class, v)
	}
}

func insert[K comparable, V any](lists map[K][]V, key K, value V, compare func(V, V) int) {
	at, _ := slices.BinarySearchFunc(lists[key], value, compare)
	lists[key] = slices.Insert(lists[key], at, value)
}

func bySize(a, b *volume) int {
	return cmp.Or(cmp.Compare(a.capacity, b.capacity), cmp.Compare(a.now.Name, b.now.Name))
}

// SetClass adds or updates a storage class.
func (s *Storage) SetClass(object *storagev1.StorageClass) {
	s.classes[object.Name] = newClass(object)
	s.ledger.everything = true
}

func (s *Storage) RemoveClass(name string) {
	delete(s.classes, name)
	s.ledger.everything = true
}

// SetNode adds or updates a CSINode.
func (s *Storage) SetNode(object *storagev1.CSINode) {
	s.setNode(nodetable.Intern(object.Name), object)
}

func (s *Storage) RemoveNode(name string) { s.setNode(nodetable.Intern(name), nil) }

func (s *Storage) setNode(name nodetable.Symbol, object *storagev1.CSINode) {
	s.nodes[name] = object
	if object == nil {
		delete(s.nodes, name)
	}
	s.migrations++
	s.ledger.nodes = append(s.ledger.nodes, name)
}

func (s *Storage) SetDriver(object *storagev1.CSIDriver) { s.drivers[object.Name] = object }

func (s *Storage) RemoveDriver(name string) { delete(s.drivers, name) }

// SetAttachment adds or updates a VolumeAttachment.
func (s *Storage) SetAttachment(object *storagev1.VolumeAttachment) {
	s.RemoveAttachment(object.Name)
	s.attachments[object.Name] = object
	s.ledger.attach(object)
}

func (s *Storage) RemoveAttachment(name string) {
	if was := s.attachments[name]; was != nil {
		s.ledger.detach(was)
		delete(s.attachments, name)
	}
}

// reserveVolume replaces a volume by a reserved version until an informer reports a
// newer one. An identical version keeps its owner.
func (s *Storage) reserveVolume(v *volume, object *v1.PersistentVolume, by types.UID) {
	if object != v.now {
		s.unlist(v)
		v.now, v.by = object, by
		s.list(v)
	}
}

// reserveClaim is reserveVolume for a claim.
func reserveClaim(c *claim, object *v1.PersistentVolumeClaim, by types.UID) {
	if object != c.now {
		c.now, c.by = object, by
	}
}

func (s *Storage) release(pod *nodetable.Pod) {
	for _, used := range pod.Claims {
		if c := s.claims[used.Key]; c != nil && c.by == pod.UID {
			c.now, c.by = c.reported, ""
		}
		for _, v := range slices.Clone(s.claimed[used.Key]) {
			if v.by == pod.UID {
				s.unlist(v)
				v.now, v.by = v.reported, ""
				s.list(v)
			}
		}
	}
}

// notFound is the API server's message for a missing object.
func notFound(resource, name string) error { return fmt.Errorf("%s %q not found", resource, name) }
