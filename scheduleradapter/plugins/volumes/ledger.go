package volumes

import (
	"math"
	"slices"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/csi-translation-lib/plugins"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// ledger has the volumes attached to each node, by pods and VolumeAttachments.
// Changed rows are counted when they are read.
type ledger struct {
	rows    [][]attachable                // by row, each volume once
	drivers map[nodetable.Symbol]*columns // by attacher
	mark    uint64

	// Changes since the last read, besides rows of the table.
	everything bool
	claims     []nodetable.Symbol
	nodes      []nodetable.Symbol
	stale      nodetable.Bits // buffer

	byVolume map[string][]nodetable.Symbol // claims by volume
	atVolume map[string][]nodetable.Symbol // nodes by attached volume
	atNode   map[nodetable.Symbol][]*storagev1.VolumeAttachment
}

// keptChanges bounds the list of changes; beyond it all rows are counted.
const keptChanges = 4096

// columns are the volumes of a CSI driver or an in-tree plugin by row: limit, -1
// for none, and count. installed: the CSINode has the driver.
type columns struct {
	limit, count []int32
	installed    []bool
}

func newLedger() ledger {
	return ledger{
		drivers: map[nodetable.Symbol]*columns{}, everything: true,
		byVolume: map[string][]nodetable.Symbol{}, atVolume: map[string][]nodetable.Symbol{}, atNode: map[nodetable.Symbol][]*storagev1.VolumeAttachment{},
	}
}

func (l *ledger) name(c *v1.PersistentVolumeClaim, key nodetable.Symbol) {
	if c.Spec.VolumeName != "" {
		l.byVolume[c.Spec.VolumeName] = append(l.byVolume[c.Spec.VolumeName], key)
	}
	l.changed(&l.claims, key)
}

func (l *ledger) unname(c *v1.PersistentVolumeClaim, key nodetable.Symbol) {
	drop(l.byVolume, c.Spec.VolumeName, key)
	l.changed(&l.claims, key)
}

func (l *ledger) attach(a *storagev1.VolumeAttachment) {
	node := nodetable.Intern(a.Spec.NodeName)
	l.atNode[node] = append(l.atNode[node], a)
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		l.atVolume[*name] = append(l.atVolume[*name], node)
	}
	l.changed(&l.nodes, node)
}

func (l *ledger) detach(a *storagev1.VolumeAttachment) {
	node := nodetable.Intern(a.Spec.NodeName)
	drop(l.atNode, node, a)
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		drop(l.atVolume, *name, node)
	}
	l.changed(&l.nodes, node)
}

func drop[K, V comparable](lists map[K][]V, key K, value V) {
	list := lists[key]
	if at := slices.Index(list, value); at >= 0 {
		list = slices.Delete(list, at, at+1)
	}
	if lists[key] = list; len(list) == 0 {
		delete(lists, key)
	}
}

// staleVolume marks a volume whose count changes.
func (l *ledger) staleVolume(name string) {
	l.changed(&l.claims, l.byVolume[name]...)
	l.changed(&l.nodes, l.atVolume[name]...)
}

func (l *ledger) changed(list *[]nodetable.Symbol, names ...nodetable.Symbol) {
	if *list = append(*list, names...); len(*list) > keptChanges {
		*list, l.everything = (*list)[:0], true
	}
}

func (s *Storage) settle() {
	l := &s.ledger
	l.grow(s.table.Rows())
	if l.everything {
		for row := range nodetable.Row(s.table.Rows()) {
			l.stale.Set(row)
		}
	} else {
		l.stale.SetAll(s.table.ChangedRows(l.mark))
		for _, claim := range l.claims {
			for use := range s.table.Users(claim).Rows() {
				l.stale.Set(use.Row)
			}
		}
		for _, node := range l.nodes {
			if row := s.table.Row(node); row != nodetable.NoRow {
				l.stale.Set(row)
			}
		}
	}
	l.mark, l.everything, l.claims, l.nodes = s.table.Mark(), false, l.claims[:0], l.nodes[:0]
	for row := range l.stale.All() {
		s.recount(row)
	}
}

func (l *ledger) grow(rows int) {
	l.stale = l.stale.Emptied(rows)
	l.rows = append(l.rows, make([][]attachable, rows-len(l.rows))...)
	for _, c := range l.drivers {
		c.grow(rows)
	}
}

func (c *columns) grow(rows int) {
	for len(c.count) < rows {
		c.count, c.limit, c.installed = append(c.count, 0), append(c.limit, -1), append(c.installed, false)
	}
}

func (l *ledger) columns(attacher nodetable.Symbol) *columns {
	c := l.drivers[attacher]
	if c == nil {
		c = &columns{}
		c.grow(len(l.rows))
		l.drivers[attacher] = c
	}
	return c
}

func (s *Storage) recount(row nodetable.Row) {
	l := &s.ledger
	l.rows[row] = l.rows[row][:0]
	for _, c := range l.drivers {
		c.count[row], c.limit[row], c.installed[row] = 0, -1, false
	}
	node := s.table.Node(row)
	if node == nil {
		return
	}
	if csi := s.nodes[node.Name]; csi != nil {
		for i := range csi.Spec.Drivers {
			d := &csi.Spec.Drivers[i]
			c := l.columns(nodetable.Intern(d.Name))
			if c.installed[row] = true; d.Allocatable != nil && d.Allocatable.Count != nil {
				c.limit[row] = *d.Allocatable.Count
			}
		}
	}
	for name, amount := range node.Object.Status.Allocatable {
		if plugin, ok := attachables[name]; ok {
			l.columns(plugin).limit[row] = int32(min(amount.Value(), math.MaxInt32))
		}
	}
	for _, pod := range s.table.PodsOn(row) {
		for i := range pod.Claims {
			s.enter(row, node, s.ofClaim(pod.Claims[i].Key))
		}
		for i := range pod.Disks {
			s.enter(row, node, ofDisk(pod.Disks[i].Source, pod.Object.Namespace))
		}
	}
	for _, a := range l.atNode[node.Name] {
		s.enter(row, node, s.ofAttachment(a))
	}
}

// enter counts a volume on a row once.
func (s *Storage) enter(row nodetable.Row, node *nodetable.Node, a attachable) {
	if l := &s.ledger; a.handle != (nodetable.Symbol{}) && !attached(l.rows[row], a) {
		l.rows[row] = append(l.rows[row], a)
		l.columns(s.attacher(node, a)).count[row]++
	}
}

// attacher is the CSI driver or in-tree plugin of a volume on a node.
func (s *Storage) attacher(node *nodetable.Node, a attachable) nodetable.Symbol {
	if a.plugin == "" || countsAsCSI(s.nodes[node.Name], a.plugin) {
		return a.driver
	}
	return nodetable.Intern(a.plugin)
}

// attachables are the allocatable resources with the limits of in-tree plugins.
var attachables = map[v1.ResourceName]nodetable.Symbol{
	"attachable-volumes-aws-ebs":    nodetable.Intern(plugins.AWSEBSInTreePluginName),
	"attachable-volumes-gce-pd":     nodetable.Intern(plugins.GCEPDInTreePluginName),
	"attachable-volumes-azure-disk": nodetable.Intern(plugins.AzureDiskInTreePluginName),
	"attachable-volumes-cinder":     nodetable.Intern(plugins.CinderInTreePluginName),
}

func attached(list []attachable, a attachable) bool {
	return slices.ContainsFunc(list, func(b attachable) bool { return a.handle == b.handle && a.driver == b.driver })
}

// ofClaim is the volume of a claim. A claim without a volume counts by its key and
// the driver of its class.
func (s *Storage) ofClaim(key nodetable.Symbol) attachable {
	c := s.claim(key)
	if c == nil {
		return attachable{}
	}
	if v := s.volumes[c.Spec.VolumeName]; v != nil {
		return v.attachable
	}
	class := s.classes[classOfClaim(c)]
	if class == nil {
		return attachable{}
	}
	a := class.attachable
	a.handle = nodetable.Intern("\x00" + key.Value())
	return a
}

// ofDisk is a volume in the spec of a pod or attachment.
func ofDisk(source *v1.VolumeSource, namespace string) attachable {
	disk := &v1.Volume{VolumeSource: *source}
	translator := csitranslation.New()
	plugin, unnamed := translator.GetInTreePluginNameFromSpec(nil, disk)
	moved, failed := translator.TranslateInTreeInlineVolumeToCSI(logr.Discard(), disk, namespace)
	if unnamed != nil || failed != nil || moved == nil || moved.Spec.CSI == nil {
		return attachable{}
	}
	return attachable{nodetable.Intern(moved.Spec.CSI.Driver), nodetable.Intern(moved.Spec.CSI.VolumeHandle), plugin}
}

func (s *Storage) ofAttachment(a *storagev1.VolumeAttachment) attachable {
	source := &a.Spec.Source
	switch {
	case source.PersistentVolumeName != nil:
		if v := s.volumes[*source.PersistentVolumeName]; v != nil {
			return attachable{driver: nodetable.Intern(a.Spec.Attacher), handle: v.handle}
		}
	case source.InlineVolumeSpec != nil && source.InlineVolumeSpec.CSI != nil:
		return attachable{driver: nodetable.Intern(a.Spec.Attacher), handle: nodetable.Intern(source.InlineVolumeSpec.CSI.VolumeHandle)}
	}
	return attachable{}
}
