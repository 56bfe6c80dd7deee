package outoftree

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// randomTable is a table with random changes.
type randomTable struct {
	*testing.T
	random *rand.Rand
	table  *nodetable.Table
	next   int
	pods   []types.UID
}

func newRandomTable(t *testing.T, seed uint64) *randomTable {
	return &randomTable{T: t, random: rand.New(rand.NewPCG(seed, seed)), table: nodetable.New()}
}

func (c *randomTable) name() nodetable.Symbol {
	return nodetable.Intern(fmt.Sprint("n", c.random.IntN(12)))
}

func (c *randomTable) node() *nodetable.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.name().Value(), Labels: map[string]string{v1.LabelTopologyZone: fmt.Sprint("z", c.random.IntN(3))}}}
	n.Status.Allocatable = v1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("110"), "example.com/gpu": *resource.NewQuantity(int64(c.random.IntN(3)), resource.DecimalSI)}
	for range c.random.IntN(3) {
		n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{fmt.Sprint("image", c.random.IntN(4), ":1")}, SizeBytes: 7})
	}
	return nodetable.NewNode(n)
}

func (c *randomTable) pod() *nodetable.Pod {
	c.next++
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", c.next), UID: types.UID(fmt.Sprint("p", c.next))}}
	container := v1.Container{Name: "c"}
	container.Resources.Requests = v1.ResourceList{"cpu": *resource.NewMilliQuantity(int64(c.random.IntN(500)), resource.DecimalSI), "example.com/gpu": resource.MustParse("1")}
	if c.random.IntN(3) == 0 {
		container.Ports = []v1.ContainerPort{{HostPort: int32(80 + c.random.IntN(3))}}
	}
	p.Spec.Containers = []v1.Container{container}
	term := v1.PodAffinityTerm{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{}}
	switch c.random.IntN(4) {
	case 0:
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}
	case 1:
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: term}}}}
	case 2:
		p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("c", c.random.IntN(3))}}}}
	}
	digest := nodetable.NewPod(p)
	c.pods = append(c.pods, p.UID)
	return digest
}

// step makes a change, or a change inside a try.
func (c *randomTable) step() {
	place := func() {
		if row := c.table.Row(c.name()); row != nodetable.NoRow {
			c.table.Place(c.pod(), row)
		}
	}
	switch c.random.IntN(10) {
	case 0, 1:
		c.table.SetNode(c.node())
	case 2:
		c.table.RemoveNode(c.name())
	case 3, 4:
		if len(c.pods) > 0 {
			c.table.Displace(c.pods[c.random.IntN(len(c.pods))])
		}
	case 5:
		c.table.Try()
		place()
		c.table.Undo()
	default:
		place()
	}
}

// nodeInfoState is the state of a NodeInfo without its generation.
type nodeInfoState struct {
	node                                 *v1.Node
	pods, withAffinity, withAntiAffinity []*v1.Pod
	requested, nonZero, allocatable      any
	ports                                fwk.HostPortInfo
	images                               map[string]*fwk.ImageStateSummary
	claims                               map[string]int
}

func display(n fwk.NodeInfo) nodeInfoState {
	pods := func(infos []fwk.PodInfo) (all []*v1.Pod) {
		for _, info := range infos {
			all = append(all, info.GetPod())
		}
		return all
	}
	amounts := func(r fwk.Resource) any {
		scalars := map[v1.ResourceName]int64{}
		for name, value := range r.GetScalarResources() {
			if value != 0 {
				scalars[name] = value
			}
		}
		return []any{r.GetMilliCPU(), r.GetMemory(), r.GetEphemeralStorage(), r.GetAllowedPodNumber(), scalars}
	}
	return nodeInfoState{
		n.Node(), pods(n.GetPods()), pods(n.GetPodsWithAffinity()), pods(n.GetPodsWithRequiredAntiAffinity()),
		amounts(n.GetRequested()), amounts(n.GetNonZeroRequested()), amounts(n.GetAllocatable()),
		n.GetUsedPorts(), n.GetImageStates(), n.GetPVCRefCounts(),
	}
}

func showAll(nodes []fwk.NodeInfo) (all []nodeInfoState) {
	for _, n := range nodes {
		all = append(all, display(n))
	}
	return all
}

func TestSnapshotBroughtUpToDateEqualsOneMadeFromScratch(t *testing.T) {
	compareWithScratch(t, 1)
}

func TestCampaignSnapshotBroughtUpToDateEqualsOneMadeFromScratch(t *testing.T) {
	campaign.Only(t)
	for seed := range campaign.Size[uint64](200, 1) {
		compareWithScratch(t, seed)
	}
}

func compareWithScratch(t *testing.T, seed uint64) {
	c := newRandomTable(t, seed)
	f := newFollower(c.table)
	for step := range 600 {
		c.step()
		if c.random.IntN(3) > 0 {
			continue
		}
		got, want := f.take(), newFollower(c.table).take()
		for _, list := range []struct {
			name      string
			got, want []fwk.NodeInfo
		}{{"all", got.list, want.list}, {"affinity", got.affinity, want.affinity}, {"anti-affinity", got.antiAffinity, want.antiAffinity}} {
			if got, want := showAll(list.got), showAll(list.want); !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d: list %s is\n%+v\nwant\n%+v", step, list.name, got, want)
			}
		}
		if !reflect.DeepEqual(got.rows, want.rows) || got.IsPVCUsedByPods("default/c0") != want.IsPVCUsedByPods("default/c0") {
			t.Fatalf("step %d: rows %v, want %v", step, got.rows, want.rows)
		}
	}
}

func TestRowsThatDidNotChangeKeepTheirNodeInfo(t *testing.T) {
	c := newRandomTable(t, 2)
	for range 200 {
		c.step()
	}
	f := newFollower(c.table)
	before := f.take()
	if again := f.take(); again != before {
		t.Error("nothing changed, and there is another snapshot")
	}
	row := nodetable.Row(before.rows[before.list[0].Node().Name])
	c.table.Try()
	c.table.Place(c.pod(), row)
	c.table.Undo()
	if again := f.take(); again != before {
		t.Error("what was tried and undone made another snapshot")
	}
	c.table.Place(c.pod(), row)
	after := f.take()
	for i := range after.infos {
		if same := after.infos[i] == before.infos[i]; same == (nodetable.Row(i) == row) {
			t.Errorf("row %d keeps its node info: %t", i, same)
		}
	}
}

func TestCopyOfNodeInfoChangesAlone(t *testing.T) {
	c := newRandomTable(t, 3)
	for range 300 {
		c.step()
	}
	for _, n := range newFollower(c.table).take().list {
		before := display(n)
		tried := n.Snapshot()
		added := podInfoOf(c.pod().Object)
		tried.AddPodInfo(added)
		for _, info := range append(n.GetPods()[:0:0], n.GetPods()...) {
			if err := tried.RemovePod(klog.Background(), info.GetPod()); err != nil {
				t.Error(err)
			}
		}
		if !reflect.DeepEqual(display(n), before) {
			t.Fatal("changing a copy changed the original")
		}
		if err := tried.RemovePod(klog.Background(), added.GetPod()); err != nil || len(tried.GetPods()) != 0 || tried.GetRequested().GetMilliCPU() != 0 || tried.GetUsedPorts().Len() != 0 || len(tried.GetPVCRefCounts()) != 0 {
			t.Errorf("without pods: %s, %v", tried, err)
		}
		if tried.RemovePod(klog.Background(), added.GetPod()) == nil {
			t.Error("a pod is removed twice")
		}
	}
}

func TestNodeInfoThatAPluginHasChangedIsMadeAgain(t *testing.T) {
	c := newRandomTable(t, 4)
	for range 100 {
		c.step()
	}
	f := newFollower(c.table)
	want := showAll(f.take().list)
	f.take().list[0].AddPodInfo(podInfoOf(c.pod().Object))
	if reflect.DeepEqual(showAll(f.latest.list), want) {
		t.Fatal("adding a pod does not show")
	}
	if !reflect.DeepEqual(showAll(f.take().list), want) {
		t.Error("the pod that was added is still there")
	}
}

func BenchmarkTake(b *testing.B) {
	t := nodetable.New()
	for i := range 5000 {
		t.SetNode(nodetable.NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}))
	}
	f := newFollower(t)
	f.take()
	for i := 0; b.Loop(); i++ {
		t.Place(nodetable.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}}), nodetable.Row(i%5000))
		f.take()
	}
}
