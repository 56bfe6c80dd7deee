package volumes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// newCapacityObject is the capacity of a class in a topology.
func newCapacityObject(name, size string, topology *metav1.LabelSelector) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "csi", Name: name}, StorageClassName: "fast", NodeTopology: topology, Capacity: new(resource.MustParse(size)),
	}
}

func on(key string, values ...string) *metav1.LabelSelector {
	if len(values) == 1 {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: values[0]}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}

// TestCapacitiesFollowTheNodes: after random changes each node has the capacities whose
// topology selects its labels.
func TestCapacitiesFollowTheNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	c := newCluster(t, 0)
	objects := map[string]*storagev1.CSIStorageCapacity{}
	topologies := []*metav1.LabelSelector{nil, {}, on("zone", "a"), on("zone", "b"), on("zone", "a", "b"), on("host", "n1"), on("host", "n2", "n3")}
	for step := range 4_000 {
		name := fmt.Sprint("n", random.IntN(8))
		switch random.IntN(10) {
		case 0:
			c.Table.RemoveNode(nodetable.Intern(name))
		case 1, 2, 3:
			c.Table.SetNode(nodetable.NewNode(node(name, map[string]string{"host": name, "zone": string(rune('a' + random.IntN(3)))})))
		case 4, 5:
			name = fmt.Sprint("c", random.IntN(12))
			delete(objects, name)
			c.RemoveCapacity("csi", name)
		default:
			name = fmt.Sprint("c", random.IntN(12))
			objects[name] = newCapacityObject(name, fmt.Sprint(1+random.IntN(4), "Gi"), topologies[random.IntN(len(topologies))])
			c.SetCapacity(objects[name])
		}
		if random.IntN(3) > 0 {
			continue
		}
		of := c.capacities["fast"]
		if of == nil {
			if len(objects) > 0 {
				t.Fatal("no capacities")
			}
			continue
		}
		of.follow(c.Table)
		for row := range c.Table.Alive().All() {
			var got, want []string
			for _, has := range of.rows[row] {
				got = append(got, fmt.Sprint(has.key, " ", has.most))
			}
			for _, object := range objects {
				selector, err := metav1.LabelSelectorAsSelector(object.NodeTopology)
				require.NoError(t, err)
				if selector.Matches(labels.Set(c.Table.Node(row).Object.Labels)) {
					want = append(want, fmt.Sprint("csi/", object.Name, " ", object.Capacity.Value()))
				}
			}
			slices.Sort(want)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("step %d: node %s has %v, want %v", step, c.Table.Node(row).Name.Value(), got, want)
			}
		}
	}
}

// perNode is a class with tracked capacity and a capacity for each node.
func perNode(t testing.TB, nodes int) (c *cluster, b *Binding, waits *nodetable.Pod) {
	c = newCluster(t, 0)
	c.add(
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)}},
		newClaim("c", "fast", "1Gi"),
	)
	for i := range nodes {
		name := fmt.Sprint("n", i)
		c.Table.SetNode(nodetable.NewNode(node(name, map[string]string{"host": name})))
		c.add(newCapacityObject(name, fmt.Sprint(1+i%2*9, "Gi"), on("host", name)))
	}
	return c, c.binding(), nodetable.NewPod(pod("p", "c"))
}

func (c *cluster) feasible(t testing.TB, b *Binding, p *nodetable.Pod) int {
	cycle := &framework.Cycle{Table: c.Table, Pod: p, Feasible: slices.Clone(c.Table.Alive())}
	if status := b.PreFilter(cycle); !status.OK() {
		t.Fatal(status.Message())
	}
	if status := b.Filter(cycle); !status.OK() {
		t.Fatal(status.Message())
	}
	return cycle.Feasible.Count()
}

// TestAnAttemptMatchesTheTopologiesOfChangedNodes: without a change of labels an attempt
// matches no topology, and a changed node is matched with those that require one of its
// labels.
func TestAnAttemptMatchesTheTopologiesOfChangedNodes(t *testing.T) {
	c, b, p := perNode(t, 300)
	matched := func() int {
		before := c.capacities["fast"].matched
		if n := c.feasible(t, b, p); n != 300 {
			t.Errorf("%d feasible nodes", n)
		}
		return c.capacities["fast"].matched - before
	}
	if n := matched(); n != 0 {
		t.Errorf("%d topologies matched, want 0", n)
	}
	n7 := node("n7", map[string]string{"host": "n7", "tier": "gold"})
	c.Table.SetNode(nodetable.NewNode(n7))
	if n := matched(); n != 1 {
		t.Errorf("%d topologies matched after new labels of a node, want 1", n)
	}
	n7 = n7.DeepCopy()
	n7.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	c.Table.SetNode(nodetable.NewNode(n7))
	c.add(newCapacityObject("n8", "20Gi", on("host", "n8")))
	if n := matched(); n != 0 {
		t.Errorf("%d topologies matched after a heartbeat and a new amount, want 0", n)
	}
}

// BenchmarkCapacities is PreFilter and Filter of a pod whose claim is provisioned, with a
// CSIStorageCapacity for each of 10,000 nodes.
func BenchmarkCapacities(b *testing.B) {
	c, binding, p := perNode(b, 10_000)
	c.feasible(b, binding, p)
	for b.Loop() {
		c.feasible(b, binding, p)
	}
}
