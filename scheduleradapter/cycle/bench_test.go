package cycle

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const (
	running = 10_000
	coming  = 1_000
)

// workloads are what comes and how the nodes are, besides three zones.
var workloads = []struct {
	name string
	node func(i int, n *v1.Node)
	pod  func(i int, p *v1.Pod)
}{
	{"basic", func(int, *v1.Node) {}, func(int, *v1.Pod) {}},
	{"taints", func(i int, n *v1.Node) {
		switch {
		case i%10 == 0:
			n.Spec.Taints = []v1.Taint{{Key: "dedicated", Value: "batch", Effect: v1.TaintEffectNoSchedule}}
		case i%3 == 0:
			n.Spec.Taints = []v1.Taint{{Key: "spot", Effect: v1.TaintEffectPreferNoSchedule}}
		}
	}, func(i int, p *v1.Pod) {
		if i%2 == 0 {
			p.Spec.Tolerations = []v1.Toleration{{Key: "dedicated", Operator: v1.TolerationOpExists}}
		}
	}},
	{"many sizes", func(int, *v1.Node) {}, func(i int, p *v1.Pod) {
		requests("100m", fmt.Sprint(512_000+i, "Ki"))(p)
	}},
	{"hard spread by zone", func(int, *v1.Node) {}, spreading(v1.LabelTopologyZone, v1.DoNotSchedule)},
	{"hard spread by node", func(int, *v1.Node) {}, spreading(v1.LabelHostname, v1.DoNotSchedule)},
	{"soft spread by zone", func(int, *v1.Node) {}, spreading(v1.LabelTopologyZone, v1.ScheduleAnyway)},
	{"soft spread by node", func(int, *v1.Node) {}, spreading(v1.LabelHostname, v1.ScheduleAnyway)},
	{"required affinity by zone", func(int, *v1.Node) {}, func(_ int, p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{web(v1.LabelTopologyZone)}}}
	}},
	{"required anti-affinity by node", func(int, *v1.Node) {}, func(i int, p *v1.Pod) {
		if i%50 != 0 { // on so few nodes that there is room for what comes
			p.Labels["app"] = "other"
			return
		}
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{web(v1.LabelHostname)}}}
	}},
	{"preferred affinity by zone", func(int, *v1.Node) {}, func(_ int, p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: web(v1.LabelTopologyZone)}}}}
	}},
	{"preferred anti-affinity by node", func(int, *v1.Node) {}, func(_ int, p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: web(v1.LabelHostname)}}}}
	}},
}

func labelledWeb() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func web(key string) v1.PodAffinityTerm {
	return v1.PodAffinityTerm{TopologyKey: key, LabelSelector: labelledWeb()}
}

func spreading(key string, when v1.UnsatisfiableConstraintAction) func(int, *v1.Pod) {
	return func(_ int, p *v1.Pod) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 5, TopologyKey: key, WhenUnsatisfiable: when, LabelSelector: labelledWeb()}}
	}
}

// BenchmarkAttempt is the time of one pod: filter, score, choose and commit, with
// every node scored and 10,000 pods running. What came is taken away again after
// 1,000 more, so that the cluster stays as full as it is.
func BenchmarkAttempt(b *testing.B) {
	for _, w := range workloads {
		for _, nodes := range []int{500, 5_000, 20_000} {
			b.Run(fmt.Sprintf("%s/%d nodes", w.name, nodes), func(b *testing.B) {
				c := newCluster(b)
				for i := range nodes {
					c.node(fmt.Sprint("node-", i), func(n *v1.Node) {
						n.Labels[v1.LabelTopologyZone] = fmt.Sprint("zone-", i%3)
						w.node(i, n)
					})
				}
				for i := range running {
					c.table.Place(c.pod(fmt.Sprint("running-", i), func(p *v1.Pod) { w.pod(i, p) }), nodetable.Row(i%nodes))
				}
				pods := make([]*nodetable.Pod, coming)
				for i := range pods {
					pods[i] = c.pod(fmt.Sprint("coming-", i), func(p *v1.Pod) { w.pod(i, p) })
				}
				next := 0
				step := func() {
					pod := pods[next%coming]
					c.table.Displace(pod.UID)
					if r := c.Attempt(pod, time.Time{}); !r.Status.OK() {
						b.Fatal(r.Message)
					}
					next++
				}
				for range 2 * coming {
					step()
				}
				b.ReportAllocs()
				for b.Loop() {
					step()
				}
			})
		}
	}
}

// BenchmarkWhatIf is one node asked whether a pod would fit without another one
// there, among 5,000.
func BenchmarkWhatIf(b *testing.B) {
	c := newCluster(b)
	const nodes = 5_000
	for i := range nodes {
		c.node(fmt.Sprint("node-", i))
		c.table.Place(c.pod(fmt.Sprint("running-", i), requests("4", "1Gi")), nodetable.Row(i))
	}
	r := c.Attempt(c.pod("p"), time.Time{})
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		row := nodetable.Row(i % nodes)
		c.table.Try()
		c.table.Displace(c.table.PodsOn(row)[0].UID)
		if fits, _, _ := r.Cycle.Fits(row); !fits {
			b.Fatal("the pod does not fit an empty node")
		}
		c.table.Undo()
		i++
	}
}
