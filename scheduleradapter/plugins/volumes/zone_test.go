package volumes

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func labelled(v *v1.PersistentVolume, labels ...string) *v1.PersistentVolume {
	v.Labels = map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		v.Labels[labels[i]] = labels[i+1]
	}
	return v
}

func TestPodIsPlacedInTheZoneOfItsVolume(t *testing.T) {
	const (
		zone, region, oldZone = v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone
		elsewhere             = "never: node(s) had no available volume zone"
	)
	for _, c := range []struct {
		name   string
		volume []string
		node   map[string]string
		want   string
	}{
		{"the same zone", []string{zone, "x"}, map[string]string{zone: "x"}, ""},
		{"another zone", []string{zone, "x"}, map[string]string{zone: "y"}, elsewhere},
		{"one of several zones", []string{zone, "x__y"}, map[string]string{zone: "y"}, ""},
		{"zone and region together", []string{zone, "x", region, "r"}, map[string]string{zone: "x", region: "s"}, elsewhere},
		{"a node that does not say where it is", []string{zone, "x"}, map[string]string{"disk": "ssd"}, ""},
		{"a node that says a region only", []string{zone, "x"}, map[string]string{region: "r"}, elsewhere},
		{"a volume without zones", []string{"disk", "x"}, map[string]string{zone: "y"}, ""},
		{"an empty zone among others says nothing", []string{zone, "x__"}, map[string]string{zone: "y"}, ""},
		{"the old label on both", []string{oldZone, "x"}, map[string]string{oldZone: "x"}, ""},
		{"the old label of the volume, the new one of the node", []string{oldZone, "x"}, map[string]string{zone: "x"}, ""},
		{"the node's old label counts before its new one", []string{oldZone, "x"}, map[string]string{oldZone: "y", zone: "x"}, elsewhere},
		{"the new label of the volume, the old one of the node", []string{zone, "x"}, map[string]string{oldZone: "x"}, elsewhere},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCluster(t, 0)
			k.Table.SetNode(nodetable.NewNode(node("n", c.node)))
			k.add(boundClaim("data", "v"), labelled(persistent("v", "", "1Gi"), c.volume...))
			if got := k.Evaluate(k.Make(k.NewZone, nil), k.Digest(pod("p", "data"))).Rejected["n"]; got != c.want {
				t.Errorf("rejected for %q, want %q", got, c.want)
			}
		})
	}
}

func TestClaimWithoutItsVolumeHasNoZone(t *testing.T) {
	k := newCluster(t, 1)
	k.add(
		storageClass("waits", "csi", waits), storageClass("soon", "csi", soon), storageClass("odd", "csi", soon),
		boundClaim("bound-to-nothing", "gone"), newClaim("classless", "", "1Gi"), newClaim("of-no-class", "none", "1Gi"),
		newClaim("waiting", "waits", "1Gi"), newClaim("unbound", "soon", "1Gi"), newClaim("of-odd", "odd", "1Gi"),
	)
	k.classes["odd"].object.VolumeBindingMode = nil
	for _, c := range []struct{ claim, want string }{
		{"", "PersistentVolumeClaim had no name"},
		{"gone", `persistentvolumeclaim "gone" not found`},
		{"bound-to-nothing", `persistentvolume "gone" not found`},
		{"classless", "PersistentVolumeClaim had no pv name and storageClass name"},
		{"of-no-class", `storageclass.storage.k8s.io "none" not found`},
		{"of-odd", `VolumeBindingMode not set for StorageClass "odd"`},
		{"unbound", "PersistentVolume had no name"},
		{"waiting", ""},
	} {
		if got := result(k.Evaluate(k.Make(k.NewZone, nil), k.Digest(pod("p", c.claim)))); got != c.want {
			t.Errorf("claim %q: %q, want %q", c.claim, got, c.want)
		}
	}
}

func TestZonesThatChangedQueueThePod(t *testing.T) {
	k := newCluster(t, 1)
	plugin, p := k.Make(k.NewZone, nil).(*Zone), k.Digest(pod("p", "data"))
	for _, c := range []struct {
		name     string
		event    framework.Event
		old, now any
		want     framework.Hint
	}{
		{"a class that waits came", framework.Event{Resource: framework.StorageClass, Action: framework.Add}, nil, storageClass("s", "csi", waits), framework.Queue},
		{"a class that does not", framework.Event{Resource: framework.StorageClass, Action: framework.Add}, nil, storageClass("s", "csi", soon), framework.QueueSkip},
		{"its claim came", framework.Event{Resource: framework.PersistentVolumeClaim, Action: framework.Add}, nil, newClaim("data", "", "1Gi"), framework.Queue},
		{"another claim came", framework.Event{Resource: framework.PersistentVolumeClaim, Action: framework.Add}, nil, newClaim("other", "", "1Gi"), framework.QueueSkip},
		{"a volume came", framework.Event{Resource: framework.PersistentVolume, Action: framework.Add}, nil, persistent("v", "", "1Gi"), framework.Queue},
		{"a volume's zone changed", framework.Event{Resource: framework.PersistentVolume, Action: framework.Update}, persistent("v", "", "1Gi"), labelled(persistent("v", "", "1Gi"), v1.LabelTopologyZone, "a"), framework.Queue},
		{"something else of it changed", framework.Event{Resource: framework.PersistentVolume, Action: framework.Update}, persistent("v", "", "1Gi"), labelled(persistent("v", "", "2Gi"), "disk", "ssd"), framework.QueueSkip},
		{"a node was moved", framework.Event{Resource: framework.NodeResource, Action: framework.UpdateNodeLabel}, nil, nil, framework.Queue},
	} {
		if got := hint(t, plugin, &framework.Occurrence{Event: c.event, OldObject: c.old, Object: c.now}, p); got != c.want {
			t.Errorf("%s: hint %d, want %d", c.name, got, c.want)
		}
	}
}
