package volumes

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func TestPodWaitsForItsClaims(t *testing.T) {
	k := newCluster(t, 1)
	k.add(
		storageClass("soon", "csi", soon), storageClass("waits", "csi", waits),
		newClaim("unbound", "soon", "1Gi"), newClaim("classless", "", "1Gi"), newClaim("of-no-class", "none", "1Gi"),
		newClaim("named", "waits", "1Gi", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }),
		boundClaim("lost", "v", func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimLost }),
		boundClaim("going", "v", func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }),
		boundClaim("p-somebodys", "v"),
	)
	const immediate = "pod has unbound immediate PersistentVolumeClaims"
	for _, c := range []struct{ claim, want string }{
		{"unbound", immediate},
		{"classless", immediate},
		{"of-no-class", immediate},
		{"named", immediate},
		{"gone", `persistentvolumeclaim "gone" not found`},
		{"~scratch", `waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"`},
		{"~somebodys", `PVC ns/p-somebodys was not created for pod ns/p (pod is not owner)`},
		{"lost", `persistentvolumeclaim "lost" bound to non-existent persistentvolume "v"`},
		{"going", `persistentvolumeclaim "going" is being deleted`},
	} {
		if got := k.Evaluate(k.binding(), k.Digest(pod("p", c.claim))); got.Status.Code != framework.UnschedulableAndUnresolvable || got.Status.Reason != c.want {
			t.Errorf("claim %q: %+v, want %q", c.claim, got.Status, c.want)
		}
	}
	if v := k.Evaluate(k.binding(), k.Digest(pod("p"))); !v.Status.OK() || len(v.Rejected) > 0 || v.Scores != nil {
		t.Errorf("a pod without claims: %+v", v)
	}
}

func TestPodIsPlacedWhereItsVolumesAreOrCanBe(t *testing.T) {
	const (
		conflict = "never: node(s) didn't match PersistentVolume's node affinity"
		nothing  = "never: node(s) didn't find available persistent volumes to bind"
		small    = "never: node(s) did not have enough free storage"
		gone     = "never: node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	)
	chosen := func(node string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) { c.Annotations = map[string]string{selectedNode: node} }
	}
	change := func(v *v1.PersistentVolume, f func(*v1.PersistentVolume)) *v1.PersistentVolume { f(v); return v }
	local, made := storageClass("local", noProvisioner, waits), storageClass("made", "csi", waits)
	block := v1.PersistentVolumeBlock
	for _, c := range []struct {
		name    string
		objects []any
		pod     *v1.Pod
		want    map[string]string
	}{
		{"bound volumes' nodes", []any{boundClaim("c", "v"), persistent("v", "", "1Gi", "a", "b")}, pod("p", "c"), map[string]string{"c": conflict}},
		{"a bound volume of every node", []any{boundClaim("c", "v"), persistent("v", "", "1Gi")}, pod("p", "c"), nil},
		{"bound volumes of different nodes", []any{boundClaim("c", "v"), persistent("v", "", "1Gi", "a"), boundClaim("d", "w"), persistent("w", "", "1Gi", "b")}, pod("p", "c", "d"), map[string]string{"a": conflict, "b": conflict, "c": conflict}},
		{"a bound volume that is gone", []any{boundClaim("c", "v")}, pod("p", "c"), map[string]string{"a": gone, "b": gone, "c": gone}},
		{"the first claim that does not fit is reported", []any{boundClaim("c", "v"), persistent("v", "", "1Gi", "a"), boundClaim("d", "w")}, pod("p", "c", "d"), map[string]string{"a": gone, "b": conflict, "c": conflict}},
		{"none that is not available", []any{local, newClaim("c", "local", "1Gi"), change(persistent("v", "local", "1Gi", "b"), func(v *v1.PersistentVolume) { v.Status.Phase = v1.VolumeReleased })}, pod("p", "c"), map[string]string{"a": nothing, "b": nothing, "c": nothing}},
		{"none that is being deleted", []any{local, newClaim("c", "local", "1Gi"), change(persistent("v", "local", "1Gi", "b"), func(v *v1.PersistentVolume) { v.DeletionTimestamp = &metav1.Time{} })}, pod("p", "c"), map[string]string{"a": nothing, "b": nothing, "c": nothing}},
		{"none of another mode", []any{local, newClaim("c", "local", "1Gi"), change(persistent("v", "local", "1Gi", "b"), func(v *v1.PersistentVolume) { v.Spec.VolumeMode = &block })}, pod("p", "c"), map[string]string{"a": nothing, "b": nothing, "c": nothing}},
		{"none without the access mode", []any{local, newClaim("c", "local", "1Gi", modes(v1.ReadWriteMany)), persistent("v", "local", "1Gi", "b")}, pod("p", "c"), map[string]string{"a": nothing, "b": nothing, "c": nothing}},
		{"none that the selector does not match", []any{local, newClaim("c", "local", "1Gi", func(c *v1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}}
		}), persistent("v", "local", "1Gi", "b"), labelled(persistent("w", "local", "1Gi", "c"), "disk", "ssd")}, pod("p", "c"), map[string]string{"a": nothing, "b": nothing}},
		{"a claim used twice needs one", []any{local, newClaim("c", "local", "1Gi"), persistent("v", "local", "1Gi", "a")}, pod("p", "c", "c"), map[string]string{"b": nothing, "c": nothing}},
		{"a volume is made anywhere", []any{made, newClaim("c", "made", "1Gi")}, pod("p", "c"), nil},
		{"where the class allows", []any{storageClass("made", "csi", waits, "a", "c"), newClaim("c", "made", "1Gi")}, pod("p", "c"), map[string]string{"b": nothing}},
		{"or is there already", []any{storageClass("made", "csi", waits, "a"), newClaim("c", "made", "1Gi"), persistent("v", "made", "1Gi", "b")}, pod("p", "c"), map[string]string{"c": nothing}},
		{"on the node it is being made for", []any{made, newClaim("c", "made", "1Gi", chosen("b"))}, pod("p", "c"), map[string]string{"a": nothing, "c": nothing}},
		{"on no node where that is gone", []any{made, newClaim("c", "made", "1Gi", chosen("z"))}, pod("p", "c"), map[string]string{"a": nothing, "b": nothing, "c": nothing}},
		{"where there is storage for it", []any{made, driver("csi", true), newClaim("c", "made", "10Gi"), space("x", "made", "a", "20Gi"), space("y", "made", "b", "5Gi"), space("z", "other", "c", "20Gi")}, pod("p", "c"), map[string]string{"b": small, "c": small}},
		{"the driver reports no capacity", []any{made, driver("csi", false), newClaim("c", "made", "10Gi"), space("y", "made", "b", "5Gi")}, pod("p", "c"), nil},
		{"the largest volume counts, not the storage", []any{made, driver("csi", true), newClaim("c", "made", "10Gi"), func() *storagev1.CSIStorageCapacity {
			s := space("x", "made", "a", "20Gi")
			s.MaximumVolumeSize = space("", "", "", "5Gi").Capacity
			return s
		}()}, pod("p", "c"), map[string]string{"a": small, "b": small, "c": small}},
		{"bound and unbound claims are reported together", []any{local, newClaim("c", "local", "1Gi"), boundClaim("d", "v"), persistent("v", "", "1Gi", "a")}, pod("p", "c", "d"), map[string]string{"a": nothing,
			"b": conflict + ", node(s) didn't find available persistent volumes to bind", "c": conflict + ", node(s) didn't find available persistent volumes to bind"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCluster(t, 3)
			k.add(c.objects...)
			got := k.Evaluate(k.binding(), k.Digest(c.pod))
			if !got.Status.OK() || !maps.Equal(got.Rejected, c.want) {
				t.Errorf("%+v: rejected %q, want %q", got.Status, got.Rejected, c.want)
			}
		})
	}
}

// rule: S1.59
func TestNodesWithMoreRoomForTheClaimsScoreHigher(t *testing.T) {
	local, made := storageClass("local", noProvisioner, waits), storageClass("made", "csi", waits)
	for _, c := range []struct {
		name    string
		objects []any
		pod     *v1.Pod
		want    map[string]int64
	}{
		{"by how much of the volume found is requested", []any{local, newClaim("c", "local", "1Gi"), persistent("v", "local", "1Gi", "a"), persistent("w", "local", "4Gi", "b"), persistent("x", "local", "10Gi", "c")}, pod("p", "c"), map[string]int64{"a": 0, "b": 75, "c": 90}},
		{"volumes of a class add up", []any{local, newClaim("c", "local", "1Gi"), newClaim("d", "local", "2Gi"), persistent("v", "local", "2Gi", "a"), persistent("w", "local", "4Gi", "a"),
			persistent("x", "local", "1Gi", "b"), persistent("y", "local", "2Gi", "b")}, pod("p", "c", "d"), map[string]int64{"a": 50, "b": 0}},
		{"classes count alike", []any{local, storageClass("fast", noProvisioner, waits), newClaim("c", "local", "1Gi"), newClaim("d", "fast", "1Gi"), persistent("v", "local", "4Gi", "a"), persistent("w", "fast", "2Gi", "a"),
			persistent("x", "local", "1Gi", "b"), persistent("y", "fast", "2Gi", "b")}, pod("p", "c", "d"), map[string]int64{"a": 63, "b": 25}},
		{"by how much of the storage is requested", []any{made, driver("csi", true), newClaim("c", "made", "1Gi"), space("x", "made", "a", "10Gi"), space("y", "made", "b", "2Gi")}, pod("p", "c"), map[string]int64{"a": 90, "b": 50}},
		{"two claims share the storage of a class", []any{made, driver("csi", true), newClaim("c", "made", "1Gi"), newClaim("d", "made", "2Gi"), space("x", "made", "a", "10Gi"), space("y", "made", "b", "2Gi")}, pod("p", "c", "d"), map[string]int64{"a": 70, "b": 0}},
		{"storage without a reported capacity scores 0", []any{made, newClaim("c", "made", "1Gi")}, pod("p", "c"), map[string]int64{"a": 0, "b": 0, "c": 0}},
		{"what is found counts before what is made", []any{local, made, driver("csi", true), newClaim("c", "local", "1Gi"), newClaim("d", "made", "1Gi"), persistent("v", "local", "4Gi", "a"), persistent("w", "local", "2Gi", "b"), space("x", "made", "a", "1Gi"), space("y", "made", "b", "10Gi")},
			pod("p", "c", "d"), map[string]int64{"a": 75, "b": 50}},
		{"nothing is to be bound", []any{boundClaim("c", "v"), persistent("v", "", "1Gi")}, pod("p", "c"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCluster(t, 3)
			k.add(c.objects...)
			if got := k.Evaluate(k.binding(), k.Digest(c.pod)).Scores; !maps.Equal(got, c.want) {
				t.Errorf("scores %v, want %v", got, c.want)
			}
		})
	}
}

func TestShapeOfTheArgumentsRatesUse(t *testing.T) {
	rate := newCluster(t, 0).binding().rate
	for use, want := range map[int64]int64{0: 100, 1: 99, 33: 67, 50: 50, 100: 0} {
		if got := rate(use); got != want {
			t.Errorf("%d %% in use rates %d, want %d", use, got, want)
		}
	}
}

func TestVolumeMovedToACSIDriverIsWhereThatSays(t *testing.T) {
	k := newCluster(t, 2)
	k.Table.SetNode(nodetable.NewNode(node("a", map[string]string{"topology.gke.io/zone": "x"})))
	k.Table.SetNode(nodetable.NewNode(node("b", map[string]string{v1.LabelTopologyZone: "x"})))
	v := labelled(persistent("v", "", "1Gi"), v1.LabelTopologyZone, "x")
	v.Spec.CSI, v.Spec.GCEPersistentDisk = nil, &v1.GCEPersistentDiskVolumeSource{PDName: "disk"}
	k.add(v, boundClaim("c", "v"))
	p := k.Digest(pod("p", "c"))
	if got := result(k.Evaluate(k.binding(), p)); got != "" {
		t.Errorf("before the driver came: %q", got)
	}
	k.add(csiNode("a", nil), csiNode("b", nil))
	if got := result(k.Evaluate(k.binding(), p)); got != "" {
		t.Errorf("before the nodes say that the plugin is migrated: %q", got)
	}
	for _, name := range []string{"a", "b"} {
		moved := csiNode(name, nil)
		moved.Annotations = map[string]string{v1.MigratedPluginsAnnotationKey: "kubernetes.io/cinder,kubernetes.io/gce-pd"}
		k.add(moved)
	}
	if got, want := result(k.Evaluate(k.binding(), p)), "b:never: node(s) didn't match PersistentVolume's node affinity"; got != want {
		t.Errorf("result %q, want %q", got, want)
	}
}

func TestStorageThatChangedQueuesThePod(t *testing.T) {
	const add, update = framework.Add, framework.Update
	k := newCluster(t, 1)
	plugin, p := k.binding(), k.Digest(pod("p", "data", "~scratch"))
	for _, c := range []struct {
		name     string
		resource framework.Resource
		action   framework.Action
		old, now any
		want     framework.Hint
	}{
		{"a class came", framework.StorageClass, add, nil, storageClass("s", "csi", soon), framework.Queue},
		{"a class allows more", framework.StorageClass, update, storageClass("s", "csi", waits, "a"), storageClass("s", "csi", waits, "b"), framework.Queue},
		{"a class changed otherwise", framework.StorageClass, update, storageClass("s", "csi", waits), storageClass("s", "csi", waits), framework.QueueSkip},
		{"its claim changed", framework.PersistentVolumeClaim, update, newClaim("data", "", "1Gi"), newClaim("data", "", "1Gi"), framework.Queue},
		{"the claim made for it came", framework.PersistentVolumeClaim, add, nil, newClaim("p-scratch", "", "1Gi"), framework.Queue},
		{"another claim came", framework.PersistentVolumeClaim, add, nil, newClaim("other", "", "1Gi"), framework.QueueSkip},
		{"a volume changed", framework.PersistentVolume, update, nil, nil, framework.Queue},
		{"a node came", framework.NodeResource, add, nil, nil, framework.Queue},
		{"a node's drivers came", framework.CSINode, add, nil, csiNode("a", nil), framework.Queue},
		{"a node's limits changed", framework.CSINode, update, csiNode("a", nil), csiNode("a", map[string]int32{"csi": 1}), framework.QueueSkip},
		{"a driver keeps account no more", framework.CSIDriver, update, driver("csi", true), driver("csi", false), framework.Queue},
		{"a driver keeps account", framework.CSIDriver, update, driver("csi", false), driver("csi", true), framework.QueueSkip},
		{"storage came", framework.CSIStorageCapacity, add, nil, space("x", "s", "a", "1Gi"), framework.Queue},
		{"storage grew", framework.CSIStorageCapacity, update, space("x", "s", "a", "1Gi"), space("x", "s", "a", "2Gi"), framework.Queue},
		{"storage shrank", framework.CSIStorageCapacity, update, space("x", "s", "a", "2Gi"), space("x", "s", "a", "1Gi"), framework.QueueSkip},
	} {
		o := framework.Occurrence{Event: framework.Event{Resource: c.resource, Action: c.action}, OldObject: c.old, Object: c.now}
		if got := hint(t, plugin, &o, p); got != c.want {
			t.Errorf("%s: hint %d, want %d", c.name, got, c.want)
		}
	}
}

func TestAClaimIsBoundToAVolumeOfItsAttributesClass(t *testing.T) {
	c := newCluster(t, 2)
	gold := persistent("gold", "local", "1Gi", "b")
	gold.Spec.VolumeAttributesClassName = new("gold")
	c.add(
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: noProvisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)},
		newClaim("c", "local", "1Gi", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }),
		persistent("plain", "local", "1Gi", "a"),
		gold,
	)
	got := c.Evaluate(c.binding(), c.Digest(pod("p", "c"))).Rejected
	if len(got) != 1 || got["a"] == "" {
		t.Errorf("rejected %v, want a", got)
	}
}
