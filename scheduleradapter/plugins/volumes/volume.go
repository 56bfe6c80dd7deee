package volumes

import (
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/csi-translation-lib/plugins"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// volume is the digest of a PersistentVolume.
type volume struct {
	// now and reported differ while a pod, by, has the volume reserved; only in the
	// claimRef.
	now, reported *v1.PersistentVolume
	by            types.UID
	class         string
	capacity      int64 // bytes
	attachable
	// affinity matches the nodes that can have the volume; moved does after CSI
	// migration.
	affinity, moved *nodetable.NodeSelector
	zones           []*nodetable.NodeSelector
	reach           reach
}

// attachable is how a volume counts as attached. Its handle is zero without a CSI
// driver.
type attachable struct {
	driver, handle nodetable.Symbol
	// plugin is the in-tree plugin that CSI migration must have replaced on the node;
	// empty: none.
	plugin string
}

// reach is the cached set of nodes that can have a volume.
type reach struct {
	labels, migrations uint64
	known, everywhere  bool
	rows               []nodetable.Row
}

func newVolume(object *v1.PersistentVolume) *volume {
	v := &volume{
		now: object, reported: object, class: classOfVolume(object), capacity: storage(object.Spec.Capacity), zones: zones(object.Labels),
		affinity: volumeAffinity(object),
	}
	if csi := object.Spec.CSI; csi != nil {
		v.attachable = attachable{driver: nodetable.Intern(csi.Driver), handle: nodetable.Intern(csi.VolumeHandle)}
		return v
	}
	translator := csitranslation.New()
	if !translator.IsPVMigratable(object) {
		return v
	}
	plugin, unnamed := translator.GetInTreePluginNameFromSpec(object, nil)
	moved, failed := translator.TranslateInTreePVToCSI(logr.Discard(), object)
	if unnamed != nil || failed != nil || moved.Spec.CSI == nil {
		return v
	}
	v.attachable = attachable{nodetable.Intern(moved.Spec.CSI.Driver), nodetable.Intern(moved.Spec.CSI.VolumeHandle), plugin}
	v.moved = volumeAffinity(moved)
	return v
}

func volumeAffinity(object *v1.PersistentVolume) *nodetable.NodeSelector {
	if object.Spec.NodeAffinity == nil {
		return nil
	}
	return nodetable.NewNodeSelector(nil, object.Spec.NodeAffinity.Required)
}

func (s *Storage) reachOf(v *volume) *reach {
	r := &v.reach
	if r.known && r.labels == s.table.Versions.Labels && (v.plugin == "" || r.migrations == s.migrations) {
		return r
	}
	r.known, r.labels, r.migrations = true, s.table.Versions.Labels, s.migrations
	if r.everywhere = v.affinity == nil && (v.plugin == "" || v.moved == nil); r.everywhere {
		return r
	}
	rows := s.table.Nodes(v.affinity, nil)
	if v.plugin != "" {
		moved := s.table.Nodes(v.moved, nil)
		for row := range s.table.Alive().All() {
			if !migrated(s.nodes[s.table.Node(row).Name], v.plugin) {
				continue
			}
			if rows.Clear(row); moved.Has(row) {
				rows.Set(row)
			}
		}
	}
	r.rows = rows.Append(r.rows[:0])
	return r
}

// affinityOn is the node affinity of the volume on a node, by its CSI migration.
func (v *volume) affinityOn(node *storagev1.CSINode) *nodetable.NodeSelector {
	if v.plugin != "" && migrated(node, v.plugin) {
		return v.moved
	}
	return v.affinity
}

// countsAsCSI reports whether volumes of an in-tree plugin count as those of its CSI
// driver on a node; nil: it has no CSINode.
func countsAsCSI(csi *storagev1.CSINode, plugin string) bool {
	switch plugin {
	case plugins.AWSEBSInTreePluginName, plugins.GCEPDInTreePluginName, plugins.AzureDiskInTreePluginName, plugins.CinderInTreePluginName, plugins.PortworxVolumePluginName:
		return csi != nil
	}
	return false
}

// migrated reports whether the CSINode says that a CSI driver has replaced an in-tree
// plugin: then the node affinity of its volumes is that of the driver.
func migrated(csi *storagev1.CSINode, plugin string) bool {
	return countsAsCSI(csi, plugin) && slices.Contains(strings.Split(csi.Annotations[v1.MigratedPluginsAnnotationKey], ","), plugin)
}

// class is the digest of a StorageClass.
type class struct {
	object *storagev1.StorageClass
	// attachable is that of provisioned volumes, without a handle.
	attachable
	// topology matches the nodes of allowedTopologies.
	topology *nodetable.NodeSelector
}

func newClass(object *storagev1.StorageClass) *class {
	c := &class{object: object, attachable: attachable{driver: nodetable.Intern(object.Provisioner)}}
	if driver, err := csitranslation.New().GetCSINameFromInTreeName(object.Provisioner); err == nil {
		c.driver, c.plugin = nodetable.Intern(driver), object.Provisioner
	}
	if len(object.AllowedTopologies) == 0 {
		return c
	}
	allowed := &v1.NodeSelector{}
	for _, term := range object.AllowedTopologies {
		var t v1.NodeSelectorTerm
		for _, e := range term.MatchLabelExpressions {
			t.MatchExpressions = append(t.MatchExpressions, v1.NodeSelectorRequirement{Key: e.Key, Operator: v1.NodeSelectorOpIn, Values: e.Values})
		}
		allowed.NodeSelectorTerms = append(allowed.NodeSelectorTerms, t)
	}
	c.topology = nodetable.NewNodeSelector(nil, allowed)
	return c
}

// delays is WaitForFirstConsumer.
func (c *class) delays() bool {
	return ptr.Deref(c.object.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
}

func amounts(object *storagev1.CSIStorageCapacity) (total, most int64) {
	total = -1
	if object.Capacity != nil {
		total = object.Capacity.Value()
	}
	if object.MaximumVolumeSize != nil {
		return total, object.MaximumVolumeSize.Value()
	}
	return total, total
}

// fromLabelSelector compiles a label selector for nodes; nil matches none.
func fromLabelSelector(s *metav1.LabelSelector) *nodetable.NodeSelector {
	if s == nil {
		return nodetable.NewNodeSelector(nil, &v1.NodeSelector{})
	}
	if len(s.MatchExpressions) == 0 {
		return nodetable.NewNodeSelector(s.MatchLabels, nil)
	}
	var term v1.NodeSelectorTerm
	for _, e := range s.MatchExpressions {
		term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: e.Key, Operator: v1.NodeSelectorOperator(e.Operator), Values: e.Values})
	}
	return nodetable.NewNodeSelector(s.MatchLabels, &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}})
}

func storage(list v1.ResourceList) int64 { return list.Storage().Value() }

// The beta annotation overrides the field, even if it is empty.

func classOfClaim(c *v1.PersistentVolumeClaim) string {
	if name, found := c.Annotations[v1.BetaStorageClassAnnotation]; found {
		return name
	}
	return ptr.Deref(c.Spec.StorageClassName, "")
}

func classOfVolume(v *v1.PersistentVolume) string {
	if name, found := v.Annotations[v1.BetaStorageClassAnnotation]; found {
		return name
	}
	return v.Spec.StorageClassName
}
