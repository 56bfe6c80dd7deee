package resources

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

const foo = "example.org/foo"

// list makes a ResourceList of pairs of a name and a quantity.
func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func pod(name string, containers ...v1.ResourceList) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	for _, r := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: v1.ResourceRequirements{Requests: r}})
	}
	return p
}

func node(name string, allocatable v1.ResourceList) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: list("pods", "3")}}
	maps.Copy(n.Status.Allocatable, allocatable)
	return n
}

func specs(weights ...any) []config.ResourceSpec {
	var all []config.ResourceSpec
	for i := 0; i < len(weights); i += 2 {
		all = append(all, config.ResourceSpec{Name: weights[i].(string), Weight: int64(weights[i+1].(int))})
	}
	return all
}

func strategy(kind config.ScoringStrategyType, resources []config.ResourceSpec, shape ...config.UtilizationShapePoint) *config.NodeResourcesFitArgs {
	s := &config.ScoringStrategy{Type: kind, Resources: resources}
	if shape != nil {
		s.RequestedToCapacityRatio = &config.RequestedToCapacityRatioParam{Shape: shape}
	}
	return &config.NodeResourcesFitArgs{ScoringStrategy: s}
}

var (
	cpuAndMemory  = specs("cpu", 1, "memory", 1)
	leastArgs     = strategy(config.LeastAllocated, cpuAndMemory)
	balancedArgs  = &config.NodeResourcesBalancedAllocationArgs{Resources: cpuAndMemory}
	packing       = []config.UtilizationShapePoint{{Utilization: 0, Score: 0}, {Utilization: 100, Score: 10}}
	packingByFoo  = strategy(config.RequestedToCapacityRatio, specs(foo, 5, "memory", 1, "cpu", 3), packing...)
	scoresToCheck = []*config.NodeResourcesFitArgs{leastArgs, strategy(config.MostAllocated, specs("cpu", 2, "memory", 1, foo, 3)), packingByFoo}
)

func TestScoresFollowTheFormulas(t *testing.T) {
	for _, c := range []struct {
		name           string
		make           framework.Factory
		args           any
		node, incoming v1.ResourceList
		want           int64
	}{
		{"a resource that scores 0 does not weigh", NewFit, strategy(config.RequestedToCapacityRatio, cpuAndMemory,
			config.UtilizationShapePoint{Utilization: 50, Score: 0}, config.UtilizationShapePoint{Utilization: 100, Score: 10}),
			list("cpu", "4", "memory", "10Gi"), list("cpu", "3", "memory", "1Gi"), 50},
		{"three resources balance by their standard deviation", NewBalanced, &config.NodeResourcesBalancedAllocationArgs{Resources: specs("cpu", 1, "memory", 1, foo, 1)},
			list("cpu", "4", "memory", "4Gi", foo, "4"), list("cpu", "4", foo, "4"), 50 + (50+52-100)/2},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := plugintest.New(t, node("n", c.node))
			v := cluster.Evaluate(cluster.Make(c.make, c.args), cluster.Digest(pod("p", c.incoming)))
			if got := v.Scores["n"]; got != c.want {
				t.Errorf("score %d, want %d (rejected: %v)", got, c.want, v.Rejected)
			}
		})
	}
}

func TestPluginThatRemembersSaysWhatANewOneSays(t *testing.T) {
	compareWithNew(t, 500)
}

func TestCampaignPluginThatRemembersSaysWhatANewOneSays(t *testing.T) {
	campaign.Only(t)
	compareWithNew(t, campaign.Size(20_000, 500))
}

// compareWithNew compares a plugin with caches and a new one after random changes
// and tries.
func compareWithNew(t *testing.T, steps int) {
	random := rand.New(rand.NewPCG(7, 7))
	cluster := plugintest.New(t)
	old := []framework.Plugin{cluster.Make(NewBalanced, balancedArgs)}
	for _, args := range scoresToCheck {
		old = append(old, cluster.Make(NewFit, args))
	}
	some := func() v1.ResourceList {
		l := list("cpu", fmt.Sprint(random.IntN(3)), "memory", fmt.Sprint(random.IntN(3), "Gi"))
		if random.IntN(2) == 0 {
			l[foo] = resource.MustParse(fmt.Sprint(random.IntN(3)))
		}
		return l
	}
	check := func() {
		asks := cluster.Digest(pod("incoming", some()))
		for i, args := range append([]any{balancedArgs}, scoresToCheck[0], scoresToCheck[1], scoresToCheck[2]) {
			factory := framework.Factory(NewFit)
			if i == 0 {
				factory = NewBalanced
			}
			got, want := cluster.Evaluate(old[i], asks), cluster.Evaluate(cluster.Make(factory, args), asks)
			if !maps.Equal(got.Rejected, want.Rejected) || !maps.Equal(got.Scores, want.Scores) {
				t.Fatalf("%s remembers %v %v, it is %v %v", old[i].Name(), got.Rejected, got.Scores, want.Rejected, want.Scores)
			}
		}
	}
	move := func() {
		uid := fmt.Sprint("pod-", random.IntN(60))
		if n := cluster.Table.Len(); n > 0 && random.IntN(3) > 0 {
			row := cluster.Table.Order()[random.IntN(n)]
			cluster.Table.Place(cluster.Digest(pod(uid, some())), row)
		} else {
			cluster.Table.Displace(types.UID(uid))
		}
	}
	for range steps {
		name := fmt.Sprint("n", random.IntN(80))
		switch random.IntN(10) {
		case 0:
			cluster.Table.SetNode(nodetable.NewNode(node(name, list("cpu", fmt.Sprint(random.IntN(9)), "memory", "8Gi", foo, fmt.Sprint(random.IntN(4))))))
		case 1:
			cluster.Table.RemoveNode(nodetable.Intern(name))
		case 2:
			cluster.Table.Try()
			move()
			check()
			cluster.Table.Undo()
		default:
			move()
		}
		check()
	}
}

func TestEventsQueuePodsTheyMayHelp(t *testing.T) {
	cluster := plugintest.New(t)
	fit := cluster.Make(NewFit, leastArgs).(*Fit)
	waiting := cluster.Digest(pod("waiting", list("cpu", "2")))
	small, large := nodetable.NewNode(node("n", list("cpu", "1"))), nodetable.NewNode(node("n", list("cpu", "2")))
	larger := nodetable.NewNode(node("n", list("cpu", "2", "memory", "1Gi")))
	bound := func(requests v1.ResourceList) *nodetable.Pod {
		p := pod("other", requests)
		p.Spec.NodeName = "n"
		return cluster.Digest(p)
	}
	nowhere := cluster.Digest(pod("other", list("cpu", "1")))
	nodes := framework.Event{Resource: framework.NodeResource, Action: framework.UpdateNodeAllocatable}
	pods := framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}
	for _, c := range []struct {
		name string
		o    framework.Occurrence
		want framework.Hint
	}{
		{"a node large enough came", framework.Occurrence{Event: nodes, Node: large}, framework.Queue},
		{"a node too small came", framework.Occurrence{Event: nodes, Node: small}, framework.QueueSkip},
		{"a node grew", framework.Occurrence{Event: nodes, OldNode: small, Node: large}, framework.Queue},
		{"a node grew in what the pod does not ask for", framework.Occurrence{Event: nodes, OldNode: large, Node: larger}, framework.QueueSkip},
		{"a pod left a node", framework.Occurrence{Event: pods, OldPod: bound(nil)}, framework.Queue},
		{"a pod left whose manifest never had a node", framework.Occurrence{Event: pods, OldPod: nowhere}, framework.Queue},
		{"a pod asks for less cpu", framework.Occurrence{Event: pods, OldPod: bound(list("cpu", "2")), Pod: bound(list("cpu", "1"))}, framework.Queue},
		{"a pod asks for less memory", framework.Occurrence{Event: pods, OldPod: bound(list("memory", "2")), Pod: bound(list("memory", "1"))}, framework.QueueSkip},
	} {
		for _, e := range fit.Events() {
			if e.Hint == nil || e.Event.Resource != c.o.Resource {
				continue
			}
			if got, err := e.Hint(&c.o, waiting); err != nil || got != c.want {
				t.Errorf("%s: hint %d (%v), want %d", c.name, got, err, c.want)
			}
		}
	}
}
