package cycle

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const (
	running = 10_000
	coming  = 1_000
)

// workload is pods and nodes in three zones.
type workload struct {
	name string
	// reference is the processor time of kube-scheduler 1.37.1 for such a pod on
	// 5,000 nodes, of which it scored a sample, on a small shared machine; 0: not
	// measured.
	reference time.Duration
	node      func(i int, n *v1.Node)
	pod       func(i int, p *v1.Pod)
	// hopeless pods fit on no node.
	hopeless bool
}

var workloads = []workload{
	{name: "basic", reference: 1820 * time.Microsecond},
	{name: "node selector", node: labelled, pod: func(_ int, p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "1"} }},
	{name: "required node affinity", node: labelled, pod: preferringNodes(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
		{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "rack", Operator: v1.NodeSelectorOpNotIn, Values: []string{"7", "8"}}, {Key: "disk", Operator: v1.NodeSelectorOpExists}}},
		{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "rack", Operator: v1.NodeSelectorOpLt, Values: []string{"20"}}}},
	}})},
	{name: "preferred node affinity", node: labelled, pod: preferringNodes(nil, v1.NodeSelectorRequirement{Key: "disk", Operator: v1.NodeSelectorOpIn, Values: []string{"1"}},
		v1.NodeSelectorRequirement{Key: "rack", Operator: v1.NodeSelectorOpGt, Values: []string{"20"}})},
	{name: "taints", node: func(i int, n *v1.Node) {
		switch {
		case i%10 == 0:
			n.Spec.Taints = []v1.Taint{{Key: "dedicated", Value: "batch", Effect: v1.TaintEffectNoSchedule}}
		case i%3 == 0:
			n.Spec.Taints = []v1.Taint{{Key: "spot", Effect: v1.TaintEffectPreferNoSchedule}}
		}
	}, pod: func(i int, p *v1.Pod) {
		if i%2 == 0 {
			p.Spec.Tolerations = []v1.Toleration{{Key: "dedicated", Operator: v1.TolerationOpExists}}
		}
	}},
	{name: "sizes that never repeat", pod: func(i int, p *v1.Pod) { requests("100m", fmt.Sprint(512_000+i, "Ki"))(p) }},
	{name: "hard spread by zone", reference: 3300 * time.Microsecond, pod: spreading(v1.LabelTopologyZone, v1.DoNotSchedule)},
	{name: "hard spread by node", pod: spreading(v1.LabelHostname, v1.DoNotSchedule)},
	{name: "soft spread by zone", reference: 4500 * time.Microsecond, pod: spreading(v1.LabelTopologyZone, v1.ScheduleAnyway)},
	{name: "soft spread by node", pod: spreading(v1.LabelHostname, v1.ScheduleAnyway)},
	{name: "required affinity by zone", reference: 7400 * time.Microsecond, pod: func(_ int, p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{web(v1.LabelTopologyZone)}}}
	}},
	{name: "required anti-affinity by node", reference: 5300 * time.Microsecond, pod: func(i int, p *v1.Pod) {
		if i%50 != 0 { // on few nodes, so that the new pods fit
			p.Labels["app"] = "other"
			return
		}
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{web(v1.LabelHostname)}}}
	}},
	{name: "required anti-affinity by zone", pod: func(i int, p *v1.Pod) { // groups of three, one pod in each zone
		p.Labels["app"] = fmt.Sprint("group-", i/3)
		term := v1.PodAffinityTerm{TopologyKey: v1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}
	}},
	{name: "preferred affinity by zone", pod: func(_ int, p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: web(v1.LabelTopologyZone)}}}}
	}},
	{name: "preferred anti-affinity by node", reference: 4700 * time.Microsecond, pod: func(_ int, p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: web(v1.LabelHostname)}}}}
	}},
	{name: "a pod that fits nowhere", hopeless: true, pod: func(i int, p *v1.Pod) {
		if i >= running {
			requests("64", fmt.Sprint(512_000+i, "Ki"))(p)
		}
	}},
}

func labelled(i int, n *v1.Node) {
	n.Labels["disk"], n.Labels["rack"] = fmt.Sprint(i%2), fmt.Sprint(i%40)
}

func preferringNodes(required *v1.NodeSelector, preferred ...v1.NodeSelectorRequirement) func(int, *v1.Pod) {
	affinity := &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	for i, r := range preferred {
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
			v1.PreferredSchedulingTerm{Weight: int32(10 * (i + 1)), Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{r}}})
	}
	return func(_ int, p *v1.Pod) { p.Spec.Affinity = &v1.Affinity{NodeAffinity: affinity} }
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

// BenchmarkAttempt measures a scheduling cycle with all nodes scored and 10,000
// placed pods. A placed pod is removed after 1,000 further ones, so that the usage
// of the cluster is constant. The processor time is that of the process; on a busy
// machine it is more accurate than the wall time.
func BenchmarkAttempt(b *testing.B) {
	for i := range workloads {
		for _, nodes := range []int{500, 5_000, 20_000} {
			w := &workloads[i]
			b.Run(fmt.Sprintf("%s/%d nodes", w.name, nodes), func(b *testing.B) { w.attempt(b, nodes, everyNode) })
		}
	}
}

// BenchmarkSampledAttempt measures it with 5 % of the nodes scored, as by default in a
// large cluster.
func BenchmarkSampledAttempt(b *testing.B) {
	for i := range workloads {
		for _, nodes := range []int{20_000, 100_000} {
			w := &workloads[i]
			b.Run(fmt.Sprintf("%s/%d nodes", w.name, nodes), func(b *testing.B) { w.attempt(b, nodes, func(n int) int { return n / 20 }) })
		}
	}
}

func (w *workload) attempt(b *testing.B, nodes int, enough func(nodes int) int) {
	c := newCluster(b)
	c.enough = enough
	for i := range nodes {
		c.node(fmt.Sprint("node-", i), func(n *v1.Node) {
			n.Labels[v1.LabelTopologyZone] = fmt.Sprint("zone-", i%3)
			if w.node != nil {
				w.node(i, n)
			}
		})
	}
	pod := func(i int) *nodetable.Pod {
		return c.pod(fmt.Sprint(i), func(p *v1.Pod) {
			if w.pod != nil {
				w.pod(i, p)
			}
		})
	}
	for i := range running {
		c.table.Place(pod(i), nodetable.Row(i%nodes))
	}
	pods := make([]*nodetable.Pod, coming)
	for i := range pods {
		pods[i] = pod(running + i)
	}
	next := 0
	step := func() {
		pod := pods[next%coming]
		c.table.Displace(pod.UID)
		if r := c.SchedulingCycle(pod, time.Time{}); r.Status.OK() == w.hopeless {
			b.Fatal(r.Message)
		}
		next++
	}
	for range 2 * coming {
		step()
	}
	runtime.GC() // of the setup
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		step()
	}
	each := float64(processorTime(b)-before) / float64(b.N)
	b.ReportMetric(each, "cpu-ns/op")
	if w.reference > 0 && nodes == 5_000 {
		b.ReportMetric(float64(w.reference)/each, "x-kube-scheduler-1.37.1")
	}
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkWhatIf runs the filters for one of 5,000 nodes without its pod.
func BenchmarkWhatIf(b *testing.B) {
	c := newCluster(b)
	const nodes = 5_000
	for i := range nodes {
		c.node(fmt.Sprint("node-", i))
		c.table.Place(c.pod(fmt.Sprint("running-", i), requests("4", "1Gi")), nodetable.Row(i))
	}
	r := c.SchedulingCycle(c.pod("p"), time.Time{})
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
