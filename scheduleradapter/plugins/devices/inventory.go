package devices

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// inventory has the resource slices by pool and node. It counts changes, so that the
// result of an allocation is kept for the nodes that a change does not concern.
type inventory struct {
	slices map[string]*listed
	pools  map[poolID]*pool
	// local are the pools that have a slice of a node, by node.
	local map[nodetable.Symbol][]*pool
	// shared are the pools that have a slice of several nodes, sorted.
	shared []*pool

	// epoch changes with what concerns all nodes.
	epoch uint64
	// stale are the nodes whose pools have changed in this epoch, in order.
	stale []nodetable.Symbol
}

// maxStale bounds inventory.stale; after that the epoch changes.
const maxStale = 1 << 14

type poolID struct{ driver, name string }

// pool is a resource pool.
type pool struct {
	id     poolID
	slices []*resourceapi.ResourceSlice // with the taints of rules, sorted by name
	shared int                          // slices that several nodes may use
}

// listed is a slice without and with the taints of the DeviceTaintRules.
type listed struct{ reported, tainted *resourceapi.ResourceSlice }

func newInventory() inventory {
	return inventory{slices: map[string]*listed{}, pools: map[poolID]*pool{}, local: map[nodetable.Symbol][]*pool{}, epoch: 1}
}

// changed records a change that concerns all nodes.
func (v *inventory) changed() {
	v.epoch++
	v.stale = v.stale[:0]
}

// poolChanged records a change of a pool.
func (v *inventory) poolChanged(p *pool) {
	if p.shared > 0 || len(v.stale) > maxStale {
		v.changed()
		return
	}
	for _, slice := range p.slices {
		v.stale = append(v.stale, nodetable.Intern(*slice.Spec.NodeName))
	}
}

// isShared reports whether several nodes may use a slice.
func isShared(slice *resourceapi.ResourceSlice) bool {
	return slice.Spec.NodeName == nil || *slice.Spec.NodeName == ""
}

func (v *inventory) add(slice *resourceapi.ResourceSlice) {
	id := poolID{slice.Spec.Driver, slice.Spec.Pool.Name}
	p := v.pools[id]
	if p == nil {
		p = &pool{id: id}
		v.pools[id] = p
	}
	at, _ := slices.BinarySearchFunc(p.slices, slice, bySliceName)
	p.slices = slices.Insert(p.slices, at, slice)
	if isShared(slice) {
		if p.shared++; p.shared == 1 {
			at, _ := slices.BinarySearchFunc(v.shared, p, byPoolID)
			v.shared = slices.Insert(v.shared, at, p)
		}
	} else if node := nodetable.Intern(*slice.Spec.NodeName); !slices.Contains(v.local[node], p) {
		v.local[node] = append(v.local[node], p)
	}
	v.poolChanged(p)
}

func (v *inventory) remove(slice *resourceapi.ResourceSlice) {
	id := poolID{slice.Spec.Driver, slice.Spec.Pool.Name}
	p := v.pools[id]
	v.poolChanged(p)
	is := func(other *resourceapi.ResourceSlice) bool { return other == slice }
	p.slices = slices.DeleteFunc(p.slices, is)
	if isShared(slice) {
		if p.shared--; p.shared == 0 {
			v.shared = slices.DeleteFunc(v.shared, func(other *pool) bool { return other == p })
		}
	} else if node := nodetable.Intern(*slice.Spec.NodeName); !slices.ContainsFunc(p.slices, func(other *resourceapi.ResourceSlice) bool {
		return !isShared(other) && *other.Spec.NodeName == *slice.Spec.NodeName
	}) {
		v.local[node] = slices.DeleteFunc(v.local[node], func(other *pool) bool { return other == p })
		if len(v.local[node]) == 0 {
			delete(v.local, node)
		}
	}
	if len(p.slices) == 0 {
		delete(v.pools, id)
	}
}

func bySliceName(a, b *resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) }

func byPoolID(a, b *pool) int {
	return cmp.Or(cmp.Compare(a.id.driver, b.id.driver), cmp.Compare(a.id.name, b.id.name))
}

// visible are the slices of all pools that have a slice for the node. The allocator
// needs all slices of a pool to know whether the pool is complete.
func (v *inventory) visible(node nodetable.Symbol) (all []*resourceapi.ResourceSlice) {
	for _, p := range v.local[node] {
		if p.shared == 0 {
			all = append(all, p.slices...)
		}
	}
	for _, p := range v.shared {
		all = append(all, p.slices...)
	}
	return all
}

// isBare reports whether no slice is for the node.
func (v *inventory) isBare(node nodetable.Symbol) bool {
	return len(v.shared) == 0 && len(v.local[node]) == 0
}

// SetSlice adds or updates a resource slice.
func (s *Store) SetSlice(object *resourceapi.ResourceSlice) {
	s.RemoveSlice(object.Name)
	is := &listed{object, s.tainted(object)}
	s.inventory.slices[object.Name] = is
	s.inventory.add(is.tainted)
}

func (s *Store) RemoveSlice(name string) {
	if was := s.inventory.slices[name]; was != nil {
		delete(s.inventory.slices, name)
		s.inventory.remove(was.tainted)
	}
}

// SetRule adds or updates a DeviceTaintRule.
func (s *Store) SetRule(object *resourceapi.DeviceTaintRule) {
	s.rules[object.Name] = object
	s.rulesChanged()
}

func (s *Store) RemoveRule(name string) {
	delete(s.rules, name)
	s.rulesChanged()
}

func (s *Store) rulesChanged() {
	for _, name := range slices.Sorted(maps.Keys(s.inventory.slices)) {
		s.SetSlice(s.inventory.slices[name].reported)
	}
}

// tainted is a slice with the taints of the rules that select its devices, in the
// order of their names.
func (s *Store) tainted(object *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	tainted := object
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		rule := s.rules[name]
		for i := range object.Spec.Devices {
			if !selects(rule.Spec.DeviceSelector, object, object.Spec.Devices[i].Name) {
				continue
			}
			if tainted == object {
				tainted = object.DeepCopy()
			}
			tainted.Spec.Devices[i].Taints = append(tainted.Spec.Devices[i].Taints, rule.Spec.Taint)
		}
	}
	return tainted
}

// selects reports whether a rule's selector selects a device; no selector selects
// none.
func selects(selector *resourceapi.DeviceTaintSelector, slice *resourceapi.ResourceSlice, device string) bool {
	is := func(wanted *string, value string) bool { return wanted == nil || *wanted == value }
	return selector != nil && is(selector.Driver, slice.Spec.Driver) && is(selector.Pool, slice.Spec.Pool.Name) && is(selector.Device, device)
}
