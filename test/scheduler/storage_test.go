package scheduler_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const driver = "csi.example.com"

func gib(n int) resource.Quantity { return *resource.NewQuantity(int64(n)<<30, resource.BinarySI) }

// storage makes classes, drivers, claims and volumes.
func (m *maker) storage() {
	if m.volumes == 0 {
		return
	}
	m.add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "now"}, Provisioner: driver, VolumeBindingMode: new(storagev1.VolumeBindingImmediate)})
	later := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Provisioner: driver, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	if m.chance(30) {
		later.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: v1.LabelTopologyZone, Values: append(some(m, 50, "a"), "b")}}}}
	}
	m.add(later)
	m.add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)})
	m.drivers()
	for i := range m.IntN(5) {
		m.claim(fmt.Sprintf("c%d", i))
	}
	if m.chance(30) {
		volume := m.volume("x")
		volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "x"}}
		m.add(volume)
		m.add(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: pick(m, m.nodes...), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume.Name},
		}})
	}
	for i := range m.IntN(6) {
		volume := m.volume(fmt.Sprintf("v%d", i))
		if volume.Spec.GCEPersistentDisk != nil {
			volume.Spec.GCEPersistentDisk, volume.Spec.HostPath = nil, &v1.HostPathVolumeSource{Path: "/disk"}
		}
		volume.Spec.StorageClassName, volume.Status.Phase = pick(m, "local", "later"), pick(m, v1.VolumeAvailable, v1.VolumeAvailable, v1.VolumeAvailable, v1.VolumeReleased)
		m.add(volume)
	}
}

func (m *maker) drivers() {
	m.limits = m.chance(50)
	for _, node := range some(m, 85, m.nodes...) {
		csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		if m.chance(30) {
			csi.Annotations = map[string]string{v1.MigratedPluginsAnnotationKey: "kubernetes.io/gce-pd"}
			csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: "pd.csi.storage.gke.io", NodeID: node})
			if m.limits {
				csi.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(m.IntN(2)))}
			}
		}
		if m.chance(80) {
			d := storagev1.CSINodeDriver{Name: driver, NodeID: node, TopologyKeys: pick(m, nil, []string{v1.LabelTopologyZone})}
			if m.limits {
				d.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(m.IntN(3)))}
			}
			csi.Spec.Drivers = append(csi.Spec.Drivers, d)
		}
		m.add(csi)
	}
	if !m.chance(60) {
		return
	}
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(m.chance(50))}}
	if m.chance(30) {
		d.Spec.PreventPodSchedulingIfMissing = new(true)
	}
	m.add(d)
	for i := range m.IntN(4) {
		c := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("k%d", i), Namespace: v1.NamespaceDefault}, StorageClassName: pick(m, "now", "later"), Capacity: new(gib(1 + m.IntN(8)))}
		if m.chance(80) {
			c.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelTopologyZone: pick(m, "a", "b", "c")}}
		}
		if m.chance(30) {
			c.MaximumVolumeSize = new(gib(1 + m.IntN(4)))
		}
		m.add(c)
	}
}

// claim adds a claim and, where it is bound, its volume.
func (m *maker) claim(name string) {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pick(m, m.namespaces...)}}
	claim.Spec.StorageClassName = new(pick(m, "now", "later", "later", "local", "none"))
	claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{pick(m, v1.ReadWriteOnce, v1.ReadWriteOnce, v1.ReadWriteMany, v1.ReadWriteOncePod)}
	claim.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: gib(1 + m.IntN(4))}
	if m.chance(15) {
		claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: m.someLabels("disk")}
	}
	if m.chance(40) {
		volume := m.volume("b-" + name)
		volume.Spec.StorageClassName = *claim.Spec.StorageClassName
		claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		claim.Spec.VolumeName, claim.Status.Phase = volume.Name, v1.ClaimBound
		volume.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: name}
		volume.Status.Phase = v1.VolumeBound
		if m.chance(95) {
			m.add(volume)
		}
		for _, node := range some(m, 10, m.nodes...) {
			if m.limits {
				break
			}
			m.add(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a-" + name + node}, Spec: storagev1.VolumeAttachmentSpec{
				Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume.Name},
			}})
		}
	}
	m.claims = append(m.claims, claim)
	m.add(claim)
}

func (m *maker) volume(name string) *v1.PersistentVolume {
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: m.labels(30, "disk")}}
	s := &volume.Spec
	s.Capacity = v1.ResourceList{v1.ResourceStorage: gib(1 + m.IntN(6))}
	s.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteMany, v1.ReadWriteOncePod}
	switch m.IntN(5) {
	case 0:
		s.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: pick(m, "d1", "d2")}
	case 1:
		s.HostPath = &v1.HostPathVolumeSource{Path: "/data"}
	default:
		s.CSI = &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: pick(m, name, name, "shared")}
	}
	if m.chance(30) {
		volume.Labels[v1.LabelTopologyZone] = pick(m, "a", "b", "a__b")
		if s.GCEPersistentDisk != nil { // a__b cannot be translated
			volume.Labels[v1.LabelTopologyZone] = pick(m, "a", "b")
		}
	}
	if m.chance(40) {
		s.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{
			Key: pick(m, v1.LabelTopologyZone, v1.LabelHostname), Operator: v1.NodeSelectorOpIn, Values: append(some(m, 50, m.nodes...), "a", "b"),
		}}}}}}
	}
	return volume
}

// mounts gives a pod volumes.
func (m *maker) mounts(pod *v1.Pod) {
	add := func(source v1.VolumeSource) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprintf("m%d", len(pod.Spec.Volumes)), VolumeSource: source})
	}
	for _, claim := range m.claims {
		if !m.chance(m.volumes/2) || claim.Namespace != pod.Namespace {
			continue
		}
		single := claim.Spec.AccessModes[0] == v1.ReadWriteOncePod
		if running := pod.Spec.NodeName != ""; !running || !single || !m.used[claim.Name] {
			m.used[claim.Name] = m.used[claim.Name] || running
			add(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}})
		}
	}
	if m.chance(m.volumes / 20) {
		add(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "none"}})
	}
	if m.chance(m.volumes / 8) {
		add(pick(m,
			v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: pick(m, "d1", "d2"), ReadOnly: m.chance(30)}},
			v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: pick(m, "d1", "d2")}},
			v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{IQN: pick(m, "d1", "d2"), TargetPortal: "p", ReadOnly: m.chance(30)}},
			v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDImage: pick(m, "d1", "d2"), RBDPool: "p", ReadOnly: m.chance(30)}},
			v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driver}},
			v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}},
		))
	}
	if m.chance(m.volumes / 10) {
		add(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{StorageClassName: new("later")}}}})
	}
}
