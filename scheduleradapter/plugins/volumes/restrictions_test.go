package volumes

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

func TestDiskIsWrittenFromOnePodOfANode(t *testing.T) {
	gce := func(name string, readOnly bool) v1.VolumeSource {
		return v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: name, ReadOnly: readOnly}}
	}
	ebs := func(id string, readOnly bool) v1.VolumeSource {
		return v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id, ReadOnly: readOnly}}
	}
	iscsi := func(iqn string, readOnly bool) v1.VolumeSource {
		return v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{IQN: iqn, ReadOnly: readOnly}}
	}
	rbd := func(pool, image string, readOnly bool, monitors ...string) v1.VolumeSource {
		return v1.VolumeSource{RBD: &v1.RBDVolumeSource{RBDPool: pool, RBDImage: image, CephMonitors: monitors, ReadOnly: readOnly}}
	}
	cinder := v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "x"}}
	const taken = "a:node(s) had no available disk"
	for _, c := range []struct {
		name            string
		running, coming v1.VolumeSource
		want            string
	}{
		{"one GCE disk", gce("x", false), gce("x", false), taken},
		{"another", gce("x", false), gce("y", false), ""},
		{"one that both read", gce("x", true), gce("x", true), ""},
		{"one that the other only reads", gce("x", true), gce("x", false), taken},
		{"one EBS volume, even to read", ebs("x", true), ebs("x", true), taken},
		{"a GCE disk of the same name", ebs("x", false), gce("x", false), ""},
		{"one iSCSI target", iscsi("x", false), iscsi("x", true), taken},
		{"one that both read from", iscsi("x", true), iscsi("x", true), ""},
		{"one RBD image", rbd("p", "i", false, "m1", "m2"), rbd("p", "i", false, "m2"), taken},
		{"one that both read", rbd("p", "i", true, "m1"), rbd("p", "i", true, "m1"), ""},
		{"one of other monitors", rbd("p", "i", false, "m1"), rbd("p", "i", false, "m2"), ""},
		{"one of another pool", rbd("p", "i", false, "m1"), rbd("q", "i", false, "m1"), ""},
		{"a kind without the rule", cinder, cinder, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCluster(t, 2)
			k.Place(withDisk(pod("running"), c.running), "a")
			coming := k.Digest(withDisk(pod("coming"), c.coming))
			plugin := k.Make(k.NewRestrictions, nil).(*Restrictions)
			if got := result(k.Evaluate(plugin, coming)); got != c.want {
				t.Errorf("result %q, want %q", got, c.want)
			}
			left := k.Digest(withDisk(pod("running"), c.running))
			got := hint(t, plugin, &framework.Occurrence{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, OldPod: left}, coming)
			if want := c.want != ""; (got == framework.Queue) != want {
				t.Errorf("when it left, hint %d", got)
			}
		})
	}
}

func TestClaimForOnePodIsUsedByOne(t *testing.T) {
	const inUse = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
	k := newCluster(t, 2)
	k.add(boundClaim("mine", "v", modes(v1.ReadWriteOncePod)), boundClaim("ours", "w", modes(v1.ReadWriteMany)))
	plugin := k.Make(k.NewRestrictions, nil).(*Restrictions)
	coming := k.Digest(pod("coming", "mine"))
	if v := k.Evaluate(plugin, coming); result(v) != "" {
		t.Errorf("refused before a pod uses it: %s", result(v))
	}
	k.Place(pod("running", "mine", "ours"), "a")
	if got, want := result(k.Evaluate(plugin, coming)), "a:"+inUse+" b:"+inUse; got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	if got := result(k.Evaluate(plugin, k.Digest(pod("other", "ours")))); got != "" {
		t.Errorf("a shared claim is refused: %s", got)
	}
	v := k.Evaluate(plugin, coming)
	k.Table.Try()
	k.Table.Displace("running")
	if fits, _, _ := v.Cycle.Fits(k.Table.Row(v.Cycle.Table.Node(1).Name)); !fits {
		t.Error("does not fit without the user, though on another node")
	}
	k.Table.Undo()
	if got, want := result(k.Evaluate(plugin, k.Digest(pod("lost", "gone")))), `persistentvolumeclaim "gone" not found`; got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	event := framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}
	for name, want := range map[string]framework.Hint{"mine": framework.Queue, "ours": framework.QueueSkip} {
		if got := hint(t, plugin, &framework.Occurrence{Event: event, OldPod: k.Digest(pod("left", name))}, coming); got != want {
			t.Errorf("a user of %s left: hint %d, want %d", name, got, want)
		}
	}
}
