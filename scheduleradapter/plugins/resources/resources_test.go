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

func TestNodeWithoutRoomIsRejectedForEveryMissingResource(t *testing.T) {
	full := list("cpu", "2", "memory", "4Gi", "ephemeral-storage", "10Gi", foo, "2")
	for _, c := range []struct {
		name    string
		running []v1.ResourceList
		asks    v1.ResourceList
		args    func(*config.NodeResourcesFitArgs)
		want    string
	}{
		{name: "what fits exactly fits", running: []v1.ResourceList{list("cpu", "1500m")}, asks: list("cpu", "500m")},
		{name: "one millicore too much", running: []v1.ResourceList{list("cpu", "1500m")}, asks: list("cpu", "501m"), want: "Insufficient cpu"},
		{name: "all that is missing is told at once", running: []v1.ResourceList{full}, asks: list("cpu", "1", "memory", "1", "ephemeral-storage", "1", foo, "1"),
			want: "Insufficient cpu, Insufficient memory, Insufficient ephemeral-storage, Insufficient " + foo},
		{name: "more than the whole node has can never fit", running: []v1.ResourceList{list("memory", "4Gi")}, asks: list("cpu", "3", "memory", "1"),
			want: "never: Insufficient cpu, Insufficient memory"},
		{name: "a resource the node does not know can never fit", asks: list("example.org/bar", "1"), want: "never: Insufficient example.org/bar"},
		{name: "a pod that asks for nothing needs a slot only", running: []v1.ResourceList{full, nil}},
		{name: "no slot is left", running: []v1.ResourceList{nil, nil, nil}, want: "Too many pods"},
		{name: "asking for none of a resource never fails", running: []v1.ResourceList{full}, asks: list("cpu", "0", foo, "0")},
		{name: "an ignored resource is not looked at", asks: list(foo, "9"), args: func(a *config.NodeResourcesFitArgs) { a.IgnoredResources = []string{foo, "cpu"} }},
		{name: "a group of ignored resources is not looked at", asks: list(foo, "9"), args: func(a *config.NodeResourcesFitArgs) { a.IgnoredResourceGroups = []string{"example.org"} }},
		{name: "a native resource cannot be ignored", asks: list("cpu", "9"), args: func(a *config.NodeResourcesFitArgs) { a.IgnoredResources = []string{"cpu"} }, want: "never: Insufficient cpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := plugintest.New(t, node("n", full))
			for i, r := range c.running {
				cluster.Place(pod(fmt.Sprint("running-", i), r), "n")
			}
			args := *leastArgs
			if c.args != nil {
				c.args(&args)
			}
			v := cluster.Evaluate(cluster.Make(NewFit, &args), cluster.Digest(pod("p", c.asks)))
			if got := v.Rejected["n"]; got != c.want {
				t.Errorf("rejected for %q, want %q", got, c.want)
			}
		})
	}
}

func TestScoresFollowTheFormulas(t *testing.T) {
	for _, c := range []struct {
		name                    string
		make                    framework.Factory
		args                    any
		node, running, incoming v1.ResourceList
		want                    int64
	}{
		{"least allocated averages the free shares, rounded down", NewFit, leastArgs,
			list("cpu", "4", "memory", "10Gi"), list("cpu", "1", "memory", "1Gi"), list("cpu", "1", "memory", "1Gi"), 65},
		{"least allocated counts defaults for containers that ask for nothing", NewFit, leastArgs,
			list("cpu", "1", "memory", "2000Mi"), nil, nil, 90},
		{"least allocated gives 0 for what is overcommitted", NewFit, leastArgs,
			list("cpu", "1", "memory", "1Gi"), list("memory", "2Gi"), list("cpu", "500m"), 20},
		{"least allocated leaves out what the node does not have", NewFit, strategy(config.LeastAllocated, specs("cpu", 1, foo, 9)),
			list("cpu", "4"), nil, list("cpu", "1"), 75},
		{"most allocated is the used share", NewFit, strategy(config.MostAllocated, cpuAndMemory),
			list("cpu", "4", "memory", "10Gi"), list("cpu", "1", "memory", "1Gi"), list("cpu", "1", "memory", "1Gi"), 35},
		{"an extended resource counts for pods that ask for it, the running pod for 100m of cpu", NewFit, strategy(config.MostAllocated, specs("cpu", 1, foo, 3)),
			list("cpu", "4", foo, "4"), list(foo, "1"), list("cpu", "1", foo, "1"), (27 + 3*50) / 4},
		{"the documentation's first node for bin packing scores 60", NewFit, packingByFoo,
			list(foo, "4", "memory", "1Gi", "cpu", "8"), list(foo, "1", "memory", "256Mi", "cpu", "1"), list(foo, "2", "memory", "256Mi", "cpu", "2"), 60},
		{"the documentation's second node for bin packing scores 69", NewFit, packingByFoo,
			list(foo, "8", "memory", "1Gi", "cpu", "8"), list(foo, "2", "memory", "512Mi", "cpu", "6"), list(foo, "2", "memory", "256Mi", "cpu", "2"), 69},
		{"a resource that scores 0 does not weigh", NewFit, strategy(config.RequestedToCapacityRatio, cpuAndMemory,
			config.UtilizationShapePoint{Utilization: 50, Score: 0}, config.UtilizationShapePoint{Utilization: 100, Score: 10}),
			list("cpu", "4", "memory", "10Gi"), nil, list("cpu", "3", "memory", "1Gi"), 50},
		{"a pod that changes no balance scores 75", NewBalanced, balancedArgs,
			list("cpu", "4", "memory", "4Gi"), list("cpu", "1", "memory", "1Gi"), list("cpu", "1", "memory", "1Gi"), 75},
		{"a pod that uses cpu only unbalances an empty node", NewBalanced, balancedArgs,
			list("cpu", "4", "memory", "4Gi"), nil, list("cpu", "4"), 50},
		{"a pod that fills the gap makes the balance", NewBalanced, balancedArgs,
			list("cpu", "4", "memory", "4Gi"), list("cpu", "4"), list("memory", "4Gi"), 100},
		{"three resources balance by their standard deviation", NewBalanced, &config.NodeResourcesBalancedAllocationArgs{Resources: specs("cpu", 1, "memory", 1, foo, 1)},
			list("cpu", "4", "memory", "4Gi", foo, "4"), nil, list("cpu", "4", foo, "4"), 50 + (50+52-100)/2},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := plugintest.New(t, node("n", c.node))
			if c.running != nil {
				cluster.Place(pod("running", c.running), "n")
			}
			v := cluster.Evaluate(cluster.Make(c.make, c.args), cluster.Digest(pod("p", c.incoming)))
			if got := v.Scores["n"]; got != c.want {
				t.Errorf("score %d, want %d (rejected: %v)", got, c.want, v.Rejected)
			}
		})
	}
}

func TestPodThatRequestsNothingHasNoBalance(t *testing.T) {
	cluster := plugintest.New(t, node("n", list("cpu", "4", "memory", "4Gi")))
	if v := cluster.Evaluate(cluster.Make(NewBalanced, balancedArgs), cluster.Digest(pod("p", nil))); v.Scores != nil {
		t.Errorf("scores %v, want the plugin skipped", v.Scores)
	}
}

func TestPluginThatRemembersSaysWhatANewOneSays(t *testing.T) {
	compareWithNew(t, 500)
}

func TestCampaignPluginThatRemembersSaysWhatANewOneSays(t *testing.T) {
	campaign.Only(t)
	compareWithNew(t, 20_000)
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
