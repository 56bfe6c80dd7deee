package nodetable

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkPlace places and displaces a pod on 5,000 nodes, with counters for
// applications and hostname domains.
func BenchmarkPlace(b *testing.B) {
	for _, apps := range []int{0, 10, 1_000} {
		b.Run(fmt.Sprint(apps, " counters"), func(b *testing.B) {
			table := New()
			for i := range 5_000 {
				name := fmt.Sprint("n", i)
				table.SetNode(NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}))
			}
			pods := make([]*Pod, 10_000)
			for i := range pods {
				p := NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{"app": fmt.Sprint("app-", i%max(apps, 1)), "tier": "web"}}})
				pods[i] = p
				table.Place(p, Row(i%5_000))
			}
			for i := range apps {
				s := NewSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", i)}})
				table.Counter(NewMatcher([]string{""}, nil, s, true)).In(table.Topology(Intern(v1.LabelHostname)))
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				table.Place(pods[i%len(pods)], Row(i*7%5_000))
				i++
			}
		})
	}
}

// BenchmarkDigest digests a pod.
func BenchmarkDigest(b *testing.B) {
	g := generator{rand.New(rand.NewPCG(1, 1))}
	pods := make([]*v1.Pod, 100)
	for i := range pods {
		pods[i] = g.pod(fmt.Sprint(i), []string{"n"})
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		NewPod(pods[i%len(pods)])
		i++
	}
}

// BenchmarkAdopt adds 5,000 nodes after their 100,000 pods.
func BenchmarkAdopt(b *testing.B) {
	nodes := make([]*Node, 5_000)
	pods := make([]*Pod, 100_000)
	for i := range nodes {
		nodes[i] = NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
	}
	for i := range pods {
		p := NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}})
		pods[i] = p
	}
	for b.Loop() {
		table := New()
		for i, p := range pods {
			table.PlaceOn(p, nodes[i%len(nodes)].Name)
		}
		for _, n := range nodes {
			table.SetNode(n)
		}
	}
}
