package profile

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// crowdedCluster is a cluster of full nodes with the default profile.
type crowdedCluster struct{ *cycle.Scheduler }

func newCrowd(b *testing.B, nodes int, running int32) crowdedCluster {
	cfg, err := config.Compile(&config.File{}, BuiltIn())
	require.NoError(b, err)
	env, stores := environment()
	s, err := cycle.New(time.Time{}, cycle.Config{Table: env.Table, Env: env, Profiles: func(env framework.Env) ([]cycle.Profile, error) {
		return New(&cfg, env, stores, nil, slog.New(slog.DiscardHandler))
	}}, nil)
	require.NoError(b, err)
	crowd(b, s.Table, nodes, running)
	return crowdedCluster{s}
}

// crowd adds full nodes.
func crowd(b *testing.B, table *nodetable.Table, nodes int, running int32) {
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		table.SetNode(nodetable.NewNode(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, v1.LabelTopologyZone: fmt.Sprint("zone-", i%3)}},
			Status: v1.NodeStatus{Allocatable: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("32Gi"), v1.ResourcePods: resource.MustParse("110"),
			}},
		}))
		for j := range 4 {
			table.Place(crowded(b, fmt.Sprintf("running-%d-%d", i, j), running), nodetable.Row(table.Row(nodetable.Intern(name))))
		}
	}
}

// crowded is a pod that uses a quarter of a node.
func crowded(b testing.TB, name string, priority int32, changes ...func(*v1.Pod)) *nodetable.Pod {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	object.Spec.SchedulerName = v1.DefaultSchedulerName
	object.Spec.Priority = &priority
	object.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}
	for _, change := range changes {
		change(object)
	}
	return nodetable.NewPod(object)
}

// BenchmarkPreemption is a scheduling cycle on full nodes that ends with a
// nomination, or without victims; other pods are nominated before.
func BenchmarkPreemption(b *testing.B) {
	for _, nodes := range []int{1_000, 5_000} {
		for _, nominated := range []int{0, 200, 2_000} {
			b.Run(fmt.Sprintf("%d nodes/%d nominated", nodes, nominated), func(b *testing.B) {
				c := newCrowd(b, nodes, 0)
				for i := range min(nominated, nodes) { // as searches begin anywhere
					c.Nominator.Nominate(crowded(b, fmt.Sprint("before-", i), 10), fmt.Sprint("node-", i*7919%nodes))
				}
				c.attempts(b, 10, true)
			})
		}
		b.Run(fmt.Sprintf("%d nodes/10000 budgets", nodes), func(b *testing.B) {
			c := newCrowd(b, nodes, 0)
			for i := range 10_000 {
				c.Table.SetBudget(nodetable.NewBudget(&policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("budget-", i)},
					Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", i)}}},
				}))
			}
			c.attempts(b, 10, true)
		})
		b.Run(fmt.Sprintf("%d nodes/no victims", nodes), func(b *testing.B) {
			newCrowd(b, nodes, 10).attempts(b, 10, false)
		})
	}
}

func (c crowdedCluster) attempts(b *testing.B, priority int32, helps bool) {
	pod := crowded(b, "preemptor", priority)
	b.ReportAllocs()
	attempt := func() {
		r := c.SchedulingCycle(pod, time.Time{})
		if r.Status.Code != framework.Unschedulable || (r.Nomination.Node != nil) != helps {
			b.Fatalf("%v, %s", r.Nomination, r.Message)
		}
	}
	attempt() // what is kept between attempts
	before := processorTime(b)
	for b.Loop() {
		attempt()
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}
