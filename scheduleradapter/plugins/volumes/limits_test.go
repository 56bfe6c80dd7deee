package volumes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const full = "a:node(s) exceed max volume count"

func attachment(name, node, volume string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "csi", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
}

func TestNodeTakesAsManyVolumesOfADriverAsItSays(t *testing.T) {
	shared := persistent("shared", "", "1Gi")
	shared.Spec.CSI.VolumeHandle = "handle-v1"
	other := persistent("other", "", "1Gi")
	other.Spec.CSI.Driver = "other"
	disk := withDisk(pod("disk"), v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "x"}})
	azure := withDisk(pod("azure"), v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{SecretName: "s", ShareName: "x"}})
	for _, c := range []struct {
		name    string
		limits  map[string]int32
		running []*v1.Pod
		also    []any
		coming  *v1.Pod
		want    string
	}{
		{"room for one more", map[string]int32{"csi": 2}, []*v1.Pod{pod("r", "c1")}, nil, pod("p", "c2"), ""},
		{"no room", map[string]int32{"csi": 1}, []*v1.Pod{pod("r", "c1")}, nil, pod("p", "c2"), full},
		{"room for one of two", map[string]int32{"csi": 2}, []*v1.Pod{pod("r", "c1")}, nil, pod("p", "c2", "c3"), full},
		{"what is attached already needs none", map[string]int32{"csi": 1}, []*v1.Pod{pod("r", "c1")}, nil, pod("p", "c1"), ""},
		{"the same volume under another name needs none", map[string]int32{"csi": 1}, []*v1.Pod{pod("r", "c1")}, []any{shared, boundClaim("c", "shared")}, pod("p", "c"), ""},
		{"a claim used by two pods counts once", map[string]int32{"csi": 2}, []*v1.Pod{pod("r", "c1"), pod("s", "c1")}, nil, pod("p", "c2"), ""},
		{"one over the limit that needs nothing", map[string]int32{"csi": 1}, []*v1.Pod{pod("r", "c1"), pod("s", "c2")}, nil, pod("p", "c2"), ""},
		{"another driver's volume", map[string]int32{"csi": 1}, []*v1.Pod{pod("r", "c1")}, []any{other, boundClaim("o", "other")}, pod("p", "o"), ""},
		{"a driver without a limit", map[string]int32{"other": 1}, []*v1.Pod{pod("r", "c1")}, nil, pod("p", "c2"), ""},
		{"a limit of none", map[string]int32{"csi": 0}, nil, nil, pod("p", "c2"), full},
		{"what a pod no longer there left attached", map[string]int32{"csi": 1}, nil, []any{attachment("x", "a", "v1")}, pod("p", "c2"), full},
		{"what is attached for the pod itself", map[string]int32{"csi": 1}, nil, []any{attachment("x", "a", "v1")}, pod("p", "c1"), ""},
		{"attached elsewhere", map[string]int32{"csi": 1}, nil, []any{attachment("x", "b", "v1")}, pod("p", "c2"), ""},
		{"volumes to be made count by their class", map[string]int32{"csi": 1}, []*v1.Pod{pod("r", "new")}, nil, pod("p", "c2"), full},
		{"so does the pod's", map[string]int32{"csi": 1}, []*v1.Pod{pod("r", "c1")}, nil, pod("p", "new"), full},
		{"a disk whose driver took over", map[string]int32{"pd.csi.storage.gke.io": 0}, nil, nil, disk, full},
		{"one whose driver did not", map[string]int32{"file.csi.azure.com": 0}, nil, nil, azure, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCluster(t, 2)
			k.add(storageClass("waits", "csi", waits), newClaim("new", "waits", "1Gi"), csiNode("a", c.limits))
			for i := range 3 {
				k.add(persistent(fmt.Sprint("v", i+1), "", "1Gi"), boundClaim(fmt.Sprint("c", i+1), fmt.Sprint("v", i+1)))
			}
			k.add(c.also...)
			for _, p := range c.running {
				k.Place(p, "a")
			}
			if got := result(k.Evaluate(k.Make(k.NewLimits, onlyCSI()), k.Digest(c.coming))); got != c.want {
				t.Errorf("result %q, want %q", got, c.want)
			}
		})
	}
}

func TestPodOfAnUnknownClaimFitsNowhereWhileVolumesAreCounted(t *testing.T) {
	k := newCluster(t, 1)
	if got, want := result(k.Evaluate(k.Make(k.NewLimits, onlyCSI()), k.Digest(pod("p", "gone")))), `a:never: looking up PVC ns/gone: persistentvolumeclaim "gone" not found`; got != want {
		t.Errorf("result %q, want %q", got, want)
	}
}

func TestVolumesThatWentQueueThePod(t *testing.T) {
	k := newCluster(t, 1)
	plugin, p := k.Make(k.NewLimits, onlyCSI()).(*Limits), k.Digest(pod("p", "data"))
	changed := framework.Event{Resource: framework.CSINode, Action: framework.Update}
	deleted := framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}
	for _, c := range []struct {
		name string
		o    framework.Occurrence
		want framework.Hint
	}{
		{"a node's drivers came", framework.Occurrence{Event: framework.Event{Resource: framework.CSINode, Action: framework.Add}, Object: csiNode("a", nil)}, framework.Queue},
		{"a limit was raised", framework.Occurrence{Event: changed, OldObject: csiNode("a", map[string]int32{"csi": 1}), Object: csiNode("a", map[string]int32{"csi": 2})}, framework.Queue},
		{"a limit was lowered", framework.Occurrence{Event: changed, OldObject: csiNode("a", map[string]int32{"csi": 2}), Object: csiNode("a", map[string]int32{"csi": 1})}, framework.QueueSkip},
		{"a limit is gone", framework.Occurrence{Event: changed, OldObject: csiNode("a", map[string]int32{"csi": 2}), Object: csiNode("a", nil)}, framework.Queue},
		{"a pod with volumes left", framework.Occurrence{Event: deleted, OldPod: k.Digest(pod("q", "other"))}, framework.Queue},
		{"a pod without left", framework.Occurrence{Event: deleted, OldPod: k.Digest(pod("q"))}, framework.QueueSkip},
		{"a volume was detached", framework.Occurrence{Event: framework.Event{Resource: framework.VolumeAttachment, Action: framework.Delete}, OldObject: attachment("x", "a", "v")}, framework.Queue},
	} {
		if got := hint(t, plugin, &c.o, p); got != c.want {
			t.Errorf("%s: hint %d, want %d", c.name, got, c.want)
		}
	}
}

func onlyCSI() *config.NodeVolumeLimitsArgs { return &config.NodeVolumeLimitsArgs{CSI: new(true)} }

func TestNodeTakesAsManyVolumesOfAnInTreePluginAsItOrTheArgumentsSay(t *testing.T) {
	ebs := func(ids ...string) *v1.Pod {
		p := pod("ebs-" + strings.Join(ids, "-"))
		for _, id := range ids {
			withDisk(p, v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id}})
		}
		return p
	}
	gce := withDisk(pod("gce"), v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "x"}})
	ofClass := persistent("old", "", "1Gi")
	ofClass.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "claimed"}}
	for _, c := range []struct {
		name    string
		count   int32
		allowed string // of the node or its type; empty: no limit
		csi     map[string]int32
		running []*v1.Pod
		coming  *v1.Pod
		want    string
	}{
		{"room for one more", 2, "", nil, []*v1.Pod{ebs("1")}, ebs("2"), ""},
		{"no room", 1, "", nil, []*v1.Pod{ebs("1")}, ebs("2"), full},
		{"more than a node ever takes", 1, "", nil, nil, ebs("1", "2"), full},
		{"one volume of two pods", 1, "", nil, []*v1.Pod{ebs("1")}, ebs("1"), ""},
		{"a claim's volume counts too", 1, "", nil, []*v1.Pod{pod("r", "claim")}, ebs("1"), full},
		{"so does the pod's own", 1, "", nil, []*v1.Pod{ebs("1")}, pod("p", "claim"), full},
		{"the node says that it takes more", 1, "2", nil, []*v1.Pod{ebs("1")}, ebs("2"), ""},
		{"the node says that it takes fewer", 39, "1", nil, []*v1.Pod{ebs("1")}, ebs("2"), full},
		{"volumes of another kind", 1, "", nil, []*v1.Pod{ebs("1")}, gce, ""},
		{"a driver has taken over and says nothing", 1, "", map[string]int32{}, []*v1.Pod{ebs("1")}, ebs("2"), ""},
		{"a driver has taken over and takes one", 39, "", map[string]int32{"ebs.csi.aws.com": 1}, []*v1.Pod{ebs("1")}, ebs("2"), full},
		{"an instance type that takes fewer", 39, "type t3.large", nil, []*v1.Pod{ebs("1")}, ebs("2"), full},
		{"one that takes as many as others", 39, "type t2.large", nil, []*v1.Pod{ebs("1")}, ebs("2"), ""},
		{"volumes of drivers do not count", 39, "", map[string]int32{"csi": 0}, nil, pod("p", "other"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCluster(t, 1)
			if kind, ok := strings.CutPrefix(c.allowed, "type "); ok {
				n := node("a", nil)
				n.Labels = map[string]string{v1.LabelInstanceTypeStable: kind}
				k.Table.SetNode(nodetable.NewNode(n))
			} else if c.allowed != "" {
				n := node("a", nil)
				n.Status.Allocatable = v1.ResourceList{"attachable-volumes-aws-ebs": resource.MustParse(c.allowed)}
				k.Table.SetNode(nodetable.NewNode(n))
			}
			if c.csi != nil {
				k.add(csiNode("a", c.csi))
			}
			k.add(ofClass, boundClaim("claim", "old"), persistent("new", "", "1Gi"), boundClaim("other", "new"))
			for _, p := range c.running {
				k.Place(p, "a")
			}
			args := &config.NodeVolumeLimitsArgs{CSI: new(false), InTree: []config.InTreeLimit{{Plugin: "kubernetes.io/aws-ebs", Count: c.count, InstanceTypes: "^m5|t3", CountThere: 1}}}
			if got := result(k.Evaluate(k.Make(k.NewLimits, args), k.Digest(c.coming))); got != c.want {
				t.Errorf("result %q, want %q", got, c.want)
			}
		})
	}
}

// The reference counts every node for each check.
func TestLedgerOfAttachedVolumesIsThatOfTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	k := newCluster(t, 4)
	name := func(prefix string, n int) string { return fmt.Sprint(prefix, r.IntN(n)) }
	k.add(storageClass("waits", "csi", waits))
	for step := range 5000 {
		claim, volume, at, uid := name("c", 8), name("v", 8), string(rune('a'+r.IntN(4))), name("p", 10)
		switch r.IntN(12) {
		case 0:
			k.add(boundClaim(claim, volume))
		case 1:
			k.add(newClaim(claim, "waits", "1Gi"))
		case 2:
			k.RemoveClaim("ns", claim)
		case 3:
			v := persistent(volume, "", "1Gi")
			v.Spec.CSI.VolumeHandle = name("h", 6)
			k.add(v)
		case 4:
			k.RemoveVolume(volume)
		case 5:
			k.add(csiNode(at, map[string]int32{"csi": r.Int32N(5)}))
		case 6:
			k.Storage.RemoveNode(at)
		case 7:
			k.add(attachment(uid, at, volume))
		case 8:
			k.RemoveAttachment(uid)
		case 9:
			k.Table.Displace(types.UID(uid))
		case 10:
			if r.IntN(10) == 0 {
				k.Table.RemoveNode(nodetable.Intern(at))
			} else {
				k.Table.SetNode(nodetable.NewNode(node(at, nil)))
			}
		default:
			k.Place(pod(uid, claim, name("c", 8)), at)
		}
		if r.IntN(3) > 0 {
			continue
		}
		k.settle()
		for row := range k.Table.Alive().All() {
			want := k.naive(row)
			var got []string
			for _, a := range k.ledger.rows[row] {
				got = append(got, a.driver.Value()+"/"+a.handle.Value())
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("step %d: row %d has %q, want %q", step, row, got, want)
			}
			use := k.ledger.columns(nodetable.Intern("csi"))
			limit := int32(-1)
			if csi := k.nodes[k.Table.Node(row).Name]; csi != nil {
				limit = *csi.Spec.Drivers[0].Allocatable.Count
			}
			if int(use.count[row]) != len(want) || use.limit[row] != limit {
				t.Fatalf("step %d: row %d has %d of %d, want %d of %d", step, row, use.count[row], use.limit[row], len(want), limit)
			}
		}
	}
}

func (c *cluster) naive(row nodetable.Row) []string {
	var all []string
	add := func(volume string) {
		if v := c.volumes[volume]; v != nil {
			all = append(all, "csi/"+v.now.Spec.CSI.VolumeHandle)
		}
	}
	for _, p := range c.Table.PodsOn(row) {
		for _, used := range p.Claims {
			switch held := c.claims[used.Key]; {
			case held == nil:
			case c.volumes[held.now.Spec.VolumeName] != nil:
				add(held.now.Spec.VolumeName)
			case *held.now.Spec.StorageClassName == "waits":
				all = append(all, "csi/\x00ns/"+used.Name)
			}
		}
	}
	for _, a := range c.attachments {
		if a.Spec.NodeName == c.Table.Node(row).Name.Value() {
			add(*a.Spec.Source.PersistentVolumeName)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
