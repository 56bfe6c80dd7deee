package nodetable

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A sum of any requests is MaxAmount or exact, also after pods have left.
// rule: S1.117
func TestSumsSaturateAndAreExactAgain(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var (
			c      Column
			sparse SparseColumn
			exact  big.Int
			there  []int64
		)
		c.grow(64)
		for range 100 {
			n := []int64{1, MaxAmount, MaxAmount - 1, MaxAmount / 2, random.Int64N(MaxAmount)}[random.IntN(5)]
			if i := random.IntN(2 * (len(there) + 1)); i < len(there) {
				n, there = -there[i], append(there[:i], there[i+1:]...)
			} else {
				there = append(there, n)
			}
			c.request(3, n)
			sparse.request(3, n)
			exact.Add(&exact, big.NewInt(n))
			want := int64(MaxAmount)
			if exact.Cmp(big.NewInt(MaxAmount)) < 0 {
				want = exact.Int64()
			}
			if _, requested := sparse.On(3); c.Requested[3] != want || requested != want {
				t.Fatalf("after %d the sums are %d and %d, want %d", n, c.Requested[3], requested, want)
			}
		}
	}
}

// Each place of a pod at which amounts are added, with as much as an API server accepts.
// rule: S1.117
func TestHugeRequestsFitNoNode(t *testing.T) {
	huge := func(name v1.ResourceName, text string) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{name: resource.MustParse(text)}}}
	}
	const most = "9223372036854775807"
	always := v1.ContainerRestartPolicyAlways
	for name, test := range map[string]struct {
		spec v1.PodSpec
		of   func(*Requests) int64
	}{
		"a container":     {v1.PodSpec{Containers: []v1.Container{huge("memory", most)}}, func(r *Requests) int64 { return r.Memory }},
		"two containers":  {v1.PodSpec{Containers: []v1.Container{huge("memory", most), huge("memory", most)}}, func(r *Requests) int64 { return r.Memory }},
		"with defaults":   {v1.PodSpec{Containers: []v1.Container{huge("memory", most), {}}}, func(r *Requests) int64 { return r.NonZeroMemory }},
		"ephemeral":       {v1.PodSpec{Containers: []v1.Container{huge("ephemeral-storage", most), huge("ephemeral-storage", "1")}}, func(r *Requests) int64 { return r.Ephemeral }},
		"millicores":      {v1.PodSpec{Containers: []v1.Container{huge("cpu", "9223372036854776")}}, func(r *Requests) int64 { return r.CPU }},
		"many cores":      {v1.PodSpec{Containers: []v1.Container{huge("cpu", most), huge("cpu", most)}}, func(r *Requests) int64 { return r.CPU }},
		"extended":        {v1.PodSpec{Containers: []v1.Container{huge("a/b", most), huge("a/b", most)}}, func(r *Requests) int64 { return r.Extended[0].Value }},
		"init containers": {v1.PodSpec{InitContainers: []v1.Container{huge("memory", most)}}, func(r *Requests) int64 { return r.Memory }},
		"sidecars":        {v1.PodSpec{InitContainers: []v1.Container{{RestartPolicy: &always, Resources: huge("memory", most).Resources}, huge("memory", most)}}, func(r *Requests) int64 { return r.Memory }},
		"overhead":        {v1.PodSpec{Containers: []v1.Container{huge("memory", most)}, Overhead: v1.ResourceList{"memory": resource.MustParse(most)}}, func(r *Requests) int64 { return r.Memory }},
		"pod-level":       {v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"memory": resource.MustParse(most)}}, Overhead: v1.ResourceList{"memory": resource.MustParse("1")}}, func(r *Requests) int64 { return r.Memory }},
		"below pod level": {v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}, Containers: []v1.Container{huge("memory", most), huge("memory", most)}}, func(r *Requests) int64 { return r.Containers.Memory }},
	} {
		r := NewRequests(&v1.Pod{Spec: test.spec})
		if got := test.of(&r); got != MaxAmount {
			t.Errorf("%s: %d, want %d", name, got, int64(MaxAmount))
		}
	}
	node := NewNode(&v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{"memory": resource.MustParse(most), "cpu": resource.MustParse(most), "a/b": resource.MustParse(most)}}})
	if node.Memory != MaxAmount-1 || node.CPU != MaxAmount-1 || node.Extended[0].Value != MaxAmount-1 {
		t.Errorf("the node has %+v", node)
	}
}

// Pods may be on a node without being scheduled, and then its sums are as large as it takes.
// rule: S1.117
func TestNodeWithHugePodsIsFullUntilTheyLeave(t *testing.T) {
	table := New()
	table.SetNode(NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{"memory": resource.MustParse("16Gi")}}}))
	row := table.Row(Intern("a"))
	const pods = 9
	for i := range pods {
		requests := v1.ResourceList{"memory": *resource.NewQuantity(math.MaxInt64, resource.BinarySI), "a/b": *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)}
		table.Place(NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}, Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}}}), row)
	}
	for i := range pods {
		_, extended := table.Extended(Intern("a/b")).On(row)
		if lacking, _ := table.Memory.Lacking(1, int(row>>6)); lacking&(1<<(row&63)) == 0 || table.Memory.Requested[row] != MaxAmount || table.NonZeroMemory[row] != MaxAmount || extended != MaxAmount || table.Exact(row) {
			t.Fatalf("with %d pods the node has %d free", pods-i, table.Memory.Free(row))
		}
		table.Displace(types.UID(fmt.Sprint(i)))
	}
	if table.Memory.Requested[row] != 0 || table.NonZeroMemory[row] != 0 || !table.Exact(row) || len(table.Memory.carries) > 0 {
		t.Errorf("without pods the node has %d free", table.Memory.Free(row))
	}
}
