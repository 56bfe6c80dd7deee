package nodetable

import (
	"fmt"
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
