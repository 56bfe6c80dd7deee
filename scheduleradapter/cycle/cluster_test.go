package cycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/binder"
	"github.com/evictd/evictd/scheduleradapter/plugins/gates"
	"github.com/evictd/evictd/scheduleradapter/plugins/interpod"
	"github.com/evictd/evictd/scheduleradapter/plugins/nodeaffinity"
	"github.com/evictd/evictd/scheduleradapter/plugins/nodename"
	"github.com/evictd/evictd/scheduleradapter/plugins/priority"
	"github.com/evictd/evictd/scheduleradapter/plugins/resources"
	"github.com/evictd/evictd/scheduleradapter/plugins/spread"
	"github.com/evictd/evictd/scheduleradapter/plugins/taints"
	"github.com/evictd/evictd/scheduleradapter/plugins/unschedulable"
)

// bound is an API server that stores the node by pod.
type bound map[types.UID]string

func (b bound) Bind(_ context.Context, pod *nodetable.Pod, node *nodetable.Node) error {
	if at, already := b[pod.UID]; already {
		return fmt.Errorf("pod %s is on %s already", pod, at)
	}
	b[pod.UID] = node.Name.Value()
	return nil
}

// silent is Callbacks that do nothing.
type silent struct{}

func (silent) PodGroupEnded(*PodGroupResult)    {}
func (silent) AttemptEnded(*Attempt)            {}
func (silent) Nominated(*nodetable.Pod, string) {}
func (silent) Preempt(*Attempt)                 {}
func (silent) Warn(*nodetable.Pod, Warning)     {}

// cluster is a scheduler with built-in plugins.
type cluster struct {
	testing.TB
	*Scheduler
	table  *nodetable.Table
	bound  bound
	enough func(int) int
}

func everyNode(nodes int) int { return nodes }

func newCluster(t testing.TB, extra ...func(*framework.Plan)) *cluster {
	c := &cluster{TB: t, table: nodetable.New(), bound: bound{}, enough: everyNode}
	env := framework.Env{Table: c.table, Binder: c.bound}
	var plan framework.Plan
	enable := func(make framework.Factory, args any, weight int64, points ...framework.Point) {
		p, err := make(args, env)
		require.NoError(t, err)
		for _, point := range points {
			plan[point] = append(plan[point], framework.Enabled{Plugin: p, Weight: weight})
		}
	}
	scored := []config.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
	enable(gates.New, nil, 0, framework.PreEnqueue)
	enable(priority.New, nil, 0, framework.QueueSort)
	enable(nodename.New, nil, 0, framework.PreFilter, framework.Filter)
	enable(unschedulable.New, nil, 0, framework.Filter)
	enable(taints.New, nil, 3, framework.Filter, framework.Score)
	enable(nodeaffinity.New, &config.NodeAffinityArgs{}, 2, framework.PreFilter, framework.Filter, framework.PreScore, framework.Score)
	enable(resources.NewFit, &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{Type: config.LeastAllocated, Resources: scored}}, 1, framework.Filter, framework.Score)
	enable(resources.NewBalanced, &config.NodeResourcesBalancedAllocationArgs{Resources: scored}, 1, framework.PreScore, framework.Score)
	enable(spread.New, &config.PodTopologySpreadArgs{DefaultingType: config.SystemDefaulting}, 2, framework.PreFilter, framework.Filter, framework.PreScore, framework.Score)
	enable(interpod.New, &config.InterPodAffinityArgs{HardPodAffinityWeight: new(int32(1))}, 2, framework.PreFilter, framework.Filter, framework.PreScore, framework.Score)
	enable(binder.New, nil, 0, framework.Bind)
	for _, change := range extra {
		change(&plan)
	}
	runner, err := framework.New("default-scheduler", &plan)
	require.NoError(t, err)
	c.Scheduler, err = New(start, Config{
		Table: c.table,
		Env:   framework.Env{Random: rand.New(rand.NewPCG(1, 0))},
		Profiles: func(framework.Env) ([]Profile, error) {
			return []Profile{{runner, func(n int) int { return c.enough(n) }}}, nil
		},
	}, silent{})
	require.NoError(t, err)
	return c
}

func quantities(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

// node adds a node of 4 cpus and 32Gi.
func (c *cluster) node(name string, changes ...func(*v1.Node)) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
	n.Status.Allocatable = quantities("4", "32Gi")
	n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("110")
	for _, change := range changes {
		change(n)
	}
	c.table.SetNode(nodetable.NewNode(n))
}

// pod digests a pod of 100m and 500Mi.
func (c *cluster) pod(name string, changes ...func(*v1.Pod)) *nodetable.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
	p.Spec.SchedulerName = "default-scheduler"
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: quantities("100m", "500Mi")}}}
	for _, change := range changes {
		change(p)
	}
	return nodetable.NewPod(p)
}

func requests(cpu, memory string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = quantities(cpu, memory) }
}
