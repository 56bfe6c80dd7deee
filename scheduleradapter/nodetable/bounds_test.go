package nodetable

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hostile is a pod with as many extended resources, spread constraints and anti-affinity
// terms as given, under names that other pods do not have.
func hostile(name string, n int) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	requests, anti := v1.ResourceList{}, &v1.PodAntiAffinity{}
	for i := range n {
		unique := fmt.Sprint(name, "-", i)
		requests[v1.ResourceName("example.com/"+unique)] = resource.MustParse("1")
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{TopologyKey: "spread-" + unique, LabelSelector: &metav1.LabelSelector{}})
		anti.RequiredDuringSchedulingIgnoredDuringExecution = append(anti.RequiredDuringSchedulingIgnoredDuringExecution, v1.PodAffinityTerm{TopologyKey: "term-" + unique, LabelSelector: &metav1.LabelSelector{}})
	}
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}
	p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: anti}
	return p
}

func TestWhatAHostilePodHasIsBoundedAndFreed(t *testing.T) {
	table := New()
	table.SetNode(node("a", nil))
	for i := range 50 {
		p := NewPod(hostile(fmt.Sprint("p", i), 200))
		if p.Refused == "" {
			t.Fatal("the pod is not refused")
		}
		for j := range p.Spread { // as PodTopologySpread does
			table.Counter(p.Spread[j].Pods).In(table.Topology(p.Spread[j].Topology))
		}
		table.Place(p, 0)
		if n := len(table.extended); n != MaxExtended {
			t.Fatalf("%d columns, want %d", n, MaxExtended)
		}
		table.Try()
		table.Displace(p.UID)
		table.Place(NewPod(hostile("other", 3)), 0)
		table.Undo()
		if n := len(table.extended); n != MaxExtended {
			t.Fatalf("%d columns after a try, want %d", n, MaxExtended)
		}
		table.Displace(p.UID)
	}
	if n := len(table.extended); n != 0 {
		t.Errorf("%d columns are left", n)
	}
	if n := len(table.terms[RequiredAntiAffinity].byKey); n != 0 {
		t.Errorf("%d terms are left", n)
	}
	if n := len(table.topologies); n > 3*keptPerCycle {
		t.Errorf("%d topologies are left", n)
	}
}

func TestResourcesOfTheAmountZeroAreNone(t *testing.T) {
	p := hostile("p", 0)
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"example.com/none": resource.MustParse("0")}
	if got := NewPod(p).Requests.Extended; len(got) > 0 {
		t.Errorf("requests %v", got)
	}
}

func TestATopologyThatIsUsedSurvivesTheSweep(t *testing.T) {
	table := New()
	table.SetNode(node("a", map[string]string{"rack": "1"}))
	p := NewPod(hostile("p", 2))
	table.Place(p, 0)
	rack := table.Topology(Intern("rack"))
	counter := table.Counter(NewMatcher([]string{""}, nil, NewSelector(&metav1.LabelSelector{}), false))
	for i := range 4 * keptPerCycle {
		table.Topology(Intern(fmt.Sprint("key-", i)))
		if i%100 == 0 && table.Topology(Intern("rack")) != rack {
			t.Fatal("a used topology was dropped")
		}
	}
	table.SetNode(node("a", map[string]string{"rack": "2"}))
	if counts := counter.In(table.Topology(Intern("rack"))); counts[rack.Of[0]] != 1 {
		t.Errorf("%v pods in the rack", counts)
	}
	for _, term := range p.AntiAffinity {
		if table.topologies[term.Topology] == nil {
			t.Errorf("the topology %s of a placed pod was dropped", term.Topology.Value())
		}
	}
}

// TestAHostilePodTakesLittleMemoryOnManyNodes: what no other row has takes no memory for the
// other rows.
func TestAHostilePodTakesLittleMemoryOnManyNodes(t *testing.T) {
	const nodes, pods, most = 5_000, 20, 300 << 10
	table := New()
	for i := range nodes {
		table.SetNode(node(fmt.Sprint("n", i), map[string]string{v1.LabelHostname: fmt.Sprint("n", i)}))
	}
	digests := make([]*Pod, pods)
	for i := range digests {
		digests[i] = NewPod(hostile(fmt.Sprint("p", i), MaxTerms))
	}
	before := heap()
	for i, p := range digests {
		table.Place(p, Row(i*200))
	}
	each := (heap() - before) / pods
	t.Logf("%d bytes for each pod", each)
	if each > most {
		t.Errorf("each pod takes %d bytes, want at most %d", each, most)
	}
	runtime.KeepAlive(table)
	runtime.KeepAlive(digests)
}

// heap is the number of bytes of all reachable objects.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// TestANamespaceHasAShare: pods that bring what exceeds the share of their namespace are
// refused, until others have left; pods of other namespaces are not.
// rule: S8.37
func TestANamespaceHasAShare(t *testing.T) {
	table := New()
	table.SetNode(node("a", nil))
	var placed []*Pod
	for i := 0; ; i++ {
		p := NewPod(hostile(fmt.Sprint("p", i), MaxSpread)) // 32 resources and 32 terms
		if why := table.Refuses(p); why != "" {
			if want := "pods of namespace  have 9984 distinct extended resources and inter-pod affinity terms, the pod has 64 further ones, evictd-scheduler accepts 10000"; why != want {
				t.Errorf("refused by %q, want %q", why, want)
			}
			break
		}
		table.Place(p, 0)
		placed = append(placed, p)
	}
	if n := table.shares[Intern("")]; n != 9_984 || len(placed) != 156 {
		t.Errorf("%d pods have %d", len(placed), n)
	}
	late, same := hostile("late", MaxSpread), hostile("p0", MaxSpread)
	if same.UID = "same"; table.Refuses(NewPod(same)) != "" {
		t.Error("a pod that brings nothing further is refused")
	}
	late.Namespace = "other"
	if why := table.Refuses(NewPod(late)); why != "" {
		t.Errorf("a pod of another namespace is refused: %s", why)
	}
	late.Namespace = ""
	table.Try()
	table.Displace(placed[0].UID)
	table.Undo()
	if why := table.Refuses(NewPod(late)); !strings.Contains(why, "10000") {
		t.Errorf("after a try the pod is refused by %q", why)
	}
	for _, p := range placed[:2] {
		table.Displace(p.UID)
	}
	if why := table.Refuses(NewPod(late)); why != "" {
		t.Errorf("refused after others have left: %s", why)
	}
	for _, p := range placed {
		table.Displace(p.UID)
	}
	if len(table.shares) > 0 {
		t.Errorf("shares of no pods: %v", table.shares)
	}
}

// TestATopologyThatWasDroppedHasAnotherSerial: its domains may have other numbers.
func TestATopologyThatWasDroppedHasAnotherSerial(t *testing.T) {
	table := New()
	table.SetNode(node("a", map[string]string{"rack": "1"}))
	dropped := table.Topology(Intern("rack"))
	for i := range 4 * keptPerCycle {
		table.Topology(Intern(fmt.Sprint("key-", i)))
	}
	if again := table.Topology(Intern("rack")); again == dropped || again.Serial == dropped.Serial {
		t.Errorf("the topology is %+v, the dropped one was %+v", again, dropped)
	}
}
