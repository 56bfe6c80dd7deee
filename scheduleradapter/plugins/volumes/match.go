package volumes

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// want is an unbound claim with delayed binding.
type want struct {
	object *v1.PersistentVolumeClaim
	class  *class
	size   int64 // bytes
	// chosen: a volume is being provisioned for the claim on node.
	chosen bool
	node   nodetable.Symbol
	// found is the volume by row; space: provisioning with tracked capacity.
	found []*volume
	space []*capacity
	rows  nodetable.Bits // of found
}

func (b *Binding) want(object *v1.PersistentVolumeClaim, class *class) {
	w := &want{}
	if n := len(b.spare); n > 0 {
		w, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	w.object, w.class, w.size = object, class, storage(object.Spec.Resources.Requests)
	node, chosen := object.Annotations[selectedNode]
	w.node, w.chosen = nodetable.Intern(node), chosen
	rows := b.table.Rows()
	if len(w.found) < rows {
		w.found, w.space = make([]*volume, rows), make([]*capacity, rows)
	}
	w.rows = w.rows.Emptied(rows)
	b.wants = append(b.wants, w)
}

// find searches the volume of a claim on each open node: the one reserved for the
// claim, or else the smallest that no earlier claim has. It closes nodes only for a
// claim with a selected node.
func (b *Binding) find(i int) {
	w := b.wants[i]
	for row := range b.open.All() {
		w.found[row], w.space[row] = nil, nil
		w.rows.Clear(row)
	}
	if w.chosen {
		b.some = b.some.Emptied(b.table.Rows())
		if row := b.table.Row(w.node); row != nodetable.NoRow {
			b.some.Set(row)
		}
		b.rejectOthers(nothingToBind, b.some)
		return
	}
	for _, v := range b.claimed[nodetable.ClaimKey(w.object.Namespace, w.object.Name)] {
		if v.class == classOfClaim(w.object) && v.capacity >= w.size && isFor(v.now, w.object) && similar(v.now, w.object) {
			b.take(i, v)
			return
		}
	}
	selector := labels.Everything()
	if given := w.object.Spec.Selector; given != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(given); err != nil {
			return
		}
	}
	list := b.unclaimed[classOfClaim(w.object)]
	at, _ := slices.BinarySearchFunc(list, w.size, func(v *volume, size int64) int { return cmp.Compare(v.capacity, size) })
	for _, v := range list[at:] {
		if similar(v.now, w.object) && free(v.now, w.object, selector) && b.take(i, v) {
			return
		}
	}
}

// take assigns a volume to a claim on the open nodes where the claim has none and
// no earlier claim has this one; enough: all open nodes have one.
func (b *Binding) take(i int, v *volume) (enough bool) {
	w := b.wants[i]
	give := func(row nodetable.Row) {
		if !w.rows.Has(row) && !slices.ContainsFunc(b.wants[:i], func(earlier *want) bool { return earlier.found[row] == v }) {
			w.found[row] = v
			w.rows.Set(row)
		}
	}
	reach := b.reachOf(v)
	if !reach.everywhere {
		for _, row := range reach.rows {
			if b.open.Has(row) {
				give(row)
			}
		}
		return false
	}
	enough = true
	for row := range b.open.All() {
		give(row)
		enough = enough && w.rows.Has(row)
	}
	return enough
}

// isFor reports whether a volume is bound to a claim.
func isFor(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == c.Name && ref.Namespace == c.Namespace && (ref.UID == "" || ref.UID == c.UID)
}

// similar are the conditions on a volume that is bound to the claim.
func similar(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) bool {
	return v.DeletionTimestamp == nil &&
		ptr.Deref(v.Spec.VolumeMode, v1.PersistentVolumeFilesystem) == ptr.Deref(c.Spec.VolumeMode, v1.PersistentVolumeFilesystem) &&
		ptr.Deref(v.Spec.VolumeAttributesClassName, "") == ptr.Deref(c.Spec.VolumeAttributesClassName, "")
}

// free are the further conditions on an unbound volume. A volume without a phase is
// available.
func free(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim, selector labels.Selector) bool {
	return (v.Status.Phase == v1.VolumeAvailable || v.Status.Phase == "") && selector.Matches(labels.Set(v.Labels)) &&
		!slices.ContainsFunc(c.Spec.AccessModes, func(mode v1.PersistentVolumeAccessMode) bool { return !slices.Contains(v.Spec.AccessModes, mode) })
}

// provision closes the open nodes without a volume on which the claim cannot be
// provisioned.
func (b *Binding) provision(w *want) {
	if provisioner := w.class.object.Provisioner; provisioner == "" || provisioner == noProvisioner {
		b.rejectOthers(nothingToBind, w.rows)
		return
	}
	b.some = b.some.Copied(b.table.Select(w.class.topology))
	b.some.Or(w.rows)
	b.rejectOthers(nothingToBind, b.some)
	driver := b.drivers[w.class.object.Provisioner]
	if driver == nil || !ptr.Deref(driver.Spec.StorageCapacity, false) {
		return
	}
	if _, sized := w.object.Spec.Resources.Requests[v1.ResourceStorage]; !sized {
		return
	}
	b.some = b.some.Copied(w.rows)
	if of := b.capacities[w.class.object.Name]; of != nil {
		of.follow(b.table)
		for row := range b.open.All() {
			if b.some.Has(row) {
				continue
			}
			if c := of.first(row, w.size); c != nil {
				b.some.Set(row)
				w.space[row] = c
			}
		}
	}
	b.rejectOthers(noSpace, b.some)
}
