package volumes

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// cluster is a table with storage.
type cluster struct {
	*plugintest.Cluster
	*Storage
}

// newCluster makes nodes a, b, c, ... in zones a, b, c, ...
func newCluster(t testing.TB, nodes int) *cluster {
	c := &cluster{Cluster: plugintest.New(t)}
	for i := range nodes {
		name := string(rune('a' + i))
		c.Table.SetNode(nodetable.NewNode(node(name, map[string]string{v1.LabelTopologyZone: name})))
	}
	c.Storage = NewSimulatedStorage(c.Table)
	return c
}

// add adds storage objects.
func (c *cluster) add(objects ...any) {
	c.Helper()
	for _, object := range objects {
		switch object := object.(type) {
		case *v1.PersistentVolumeClaim:
			c.SetClaim(object)
		case *v1.PersistentVolume:
			c.SetVolume(object)
		case *storagev1.StorageClass:
			c.SetClass(object)
		case *storagev1.CSINode:
			c.SetNode(object)
		case *storagev1.CSIDriver:
			c.SetDriver(object)
		case *storagev1.CSIStorageCapacity:
			c.SetCapacity(object)
		case *storagev1.VolumeAttachment:
			c.SetAttachment(object)
		}
	}
}

func (c *cluster) binding() *Binding {
	return c.Make(c.NewBinding, &config.VolumeBindingArgs{BindTimeoutSeconds: new(int64(600)), Shape: []config.UtilizationShapePoint{{Utilization: 0, Score: 10}, {Utilization: 100, Score: 0}}}).(*Binding)
}

func (c *cluster) assignment(p *nodetable.Pod, node string) framework.Assignment {
	return framework.Assignment{Pod: p, Node: c.Table.Node(c.Table.Row(nodetable.Intern(node)))}
}

func node(name string, labels map[string]string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// pod uses claims by name; the prefix "~" makes one ephemeral.
func pod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for _, claim := range claims {
		v := v1.Volume{Name: strings.TrimPrefix(claim, "~")}
		if v.Ephemeral = (&v1.EphemeralVolumeSource{}); v.Name == claim {
			v.Ephemeral, v.PersistentVolumeClaim = nil, &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	return p
}

func withDisk(p *v1.Pod, source v1.VolumeSource) *v1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{VolumeSource: source})
	return p
}

func sized(quantity string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(quantity)}
}

func newClaim(name, class, size string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	c.Spec.StorageClassName, c.Spec.Resources.Requests = &class, sized(size)
	for _, f := range change {
		f(c)
	}
	return c
}

// boundClaim is bound to a volume.
func boundClaim(name, volume string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	return newClaim(name, "", "1Gi", append(change, func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName = volume
		c.Annotations = map[string]string{bindCompleted: "yes"}
	})...)
}

func modes(modes ...v1.PersistentVolumeAccessMode) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Spec.AccessModes = modes }
}

// persistent is a volume of a CSI driver, on the nodes of zones; none: on all
// nodes.
func persistent(name, class, size string, zones ...string) *v1.PersistentVolume {
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.StorageClassName, v.Spec.Capacity, v.Status.Phase = class, sized(size), v1.VolumeAvailable
	v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "csi", VolumeHandle: "handle-" + name}
	if zones != nil {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{whereLabel(v1.LabelTopologyZone, v1.NodeSelectorOpIn, zones...)}}}
	}
	return v
}

func storageClass(name, provisioner string, mode storagev1.VolumeBindingMode, zones ...string) *storagev1.StorageClass {
	s := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	if zones != nil {
		s.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: v1.LabelTopologyZone, Values: zones}}}}
	}
	return s
}

const (
	waits = storagev1.VolumeBindingWaitForFirstConsumer
	soon  = storagev1.VolumeBindingImmediate
)

func csiNode(name string, limits map[string]int32) *storagev1.CSINode {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for driver, limit := range limits {
		n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: &limit}, TopologyKeys: []string{v1.LabelTopologyZone}})
	}
	return n
}

func space(name, class, zone, total string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, StorageClassName: class, Capacity: new(resource.MustParse(total)),
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelTopologyZone: zone}},
	}
}

func driver(name string, tracks bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &tracks}}
}

// stored is the API server's state.
func (c *cluster) stored() controller { return controller{c.Storage} }

// hint calls a plugin's hints for an event.
func hint(t *testing.T, p framework.Hinter, o *framework.Occurrence, pod *nodetable.Pod) framework.Hint {
	t.Helper()
	for _, e := range p.Events() {
		if !e.Event.Includes(o.Event) {
			continue
		}
		if e.Hint == nil {
			return framework.Queue
		}
		h, err := e.Hint(o, pod)
		require.NoError(t, err)
		return h
	}
	t.Fatalf("no plugin has registered %s", o.Event)
	return 0
}

// result is the reason of the status, or the rejections and scores, as text.
func result(v plugintest.Result) string {
	if v.Status.Code == framework.UnschedulableAndUnresolvable {
		return v.Status.Reason
	}
	return strings.TrimPrefix(strings.TrimSuffix(fmt.Sprint(v.Rejected), "]"), "map[")
}
