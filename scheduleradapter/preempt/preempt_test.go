package preempt

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/binder"
	"github.com/evictd/evictd/scheduleradapter/plugins/priority"
	"github.com/evictd/evictd/scheduleradapter/plugins/resources"
)

// at is the index of the node where a search starts.
type at int

func (a at) IntN(n int) int { return int(a) % n }

// cluster has a profile with NodeResourcesFit and DefaultPreemption.
type cluster struct {
	testing.TB
	table   *nodetable.Table
	runner  *framework.Runner
	plugin  *Plugin
	cycle   framework.Cycle
	budgets []*policyv1.PodDisruptionBudget
	busy    map[types.UID]bool // preemptors whose victims are being deleted
}

func newCluster(t testing.TB, percentage, absolute int32, random framework.Random, filters ...framework.Filterer) *cluster {
	c := &cluster{TB: t, table: nodetable.New(), busy: map[types.UID]bool{}}
	env := framework.Env{
		Table: c.table, Random: random,
		Preempting: func(uid types.UID) bool { return c.busy[uid] },
	}
	var plan framework.Plan
	enable := func(factory framework.Factory, args any, points ...framework.Point) framework.Plugin {
		p, err := factory(args, env)
		if err != nil {
			t.Fatal(err)
		}
		for _, point := range points {
			plan[point] = append(plan[point], framework.Enabled{Plugin: p})
		}
		return p
	}
	enable(priority.New, nil, framework.QueueSort)
	enable(binder.New, nil, framework.Bind)
	enable(resources.NewFit, &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{
		Type: config.LeastAllocated, Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}},
	}}, framework.Filter)
	c.plugin = enable(New, &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: &percentage, MinCandidateNodesAbsolute: &absolute},
		framework.PreEnqueue, framework.PostFilter).(*Plugin)
	for _, f := range filters {
		plan[framework.Filter] = append(plan[framework.Filter], framework.Enabled{Plugin: f.(framework.Plugin)})
	}
	runner, err := framework.New("default", &plan)
	if err != nil {
		t.Fatal(err)
	}
	c.runner = runner
	return c
}

func (c *cluster) node(name string, cpu int64) {
	allocatable := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI), v1.ResourcePods: resource.MustParse("110")}
	c.table.SetNode(nodetable.NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: allocatable}}))
}

func (c *cluster) pod(name string, priority int32, cpu int64, labels ...string) *nodetable.Pod {
	c.Helper()
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	for _, l := range labels {
		object.Labels = map[string]string{"app": l}
	}
	object.Spec.Priority = &priority
	object.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)}}}}
	return nodetable.NewPod(object)
}

func (c *cluster) run(node string, pods ...*nodetable.Pod) {
	for _, pod := range pods {
		c.table.PlaceOn(pod, nodetable.Intern(node))
	}
}

// TestAnInvalidBudgetIsIgnored: an invalid object does not stop all preemption.
func TestAnInvalidBudgetIsIgnored(t *testing.T) {
	c := newCluster(t, 0, 1, at(0))
	c.node("node-0", 1)
	c.run("node-0", c.pod("on-node-0", 0, 1, "guarded"))
	c.budget("guarded", 0)
	c.budgets[0].Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Matches"}}
	c.table.SetBudget(nodetable.NewBudget(c.budgets[0]))
	if got, want := c.candidates(c.pod("p", 1, 1)), "node-0"; got != want {
		t.Errorf("%q, want %s", got, want)
	}
}

func (c *cluster) budget(app string, allowed int32) {
	c.budgets = append(c.budgets, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	})
	c.table.SetBudget(nodetable.NewBudget(c.budgets[len(c.budgets)-1]))
}

// refuse filters for a pod that fits on no node.
func (c *cluster) refuse(pod *nodetable.Pod) {
	c.Helper()
	if s := c.runner.Begin(&c.cycle, c.table, pod, nil); !s.OK() {
		c.Fatal(s)
	}
	if _, s := c.runner.Filter(&c.cycle, 0, c.table.Len()); !s.OK() || !c.cycle.Feasible.Empty() {
		c.Fatalf("filter: %s, %d feasible", s.Message(), c.cycle.Feasible.Count())
	}
	c.plugin.resolvable = c.cycle.Resolvable(c.plugin.resolvable)
}

// candidates are the nodes of a search in order.
func (c *cluster) candidates(pod *nodetable.Pod) string {
	c.Helper()
	c.refuse(pod)
	found, _, err := c.plugin.search(&c.cycle)
	if err != nil {
		c.Fatal(err)
	}
	var names []string
	for _, candidate := range found {
		names = append(names, c.table.Node(candidate.row).Name.Value())
	}
	return strings.Join(names, " ")
}

// rule: S2.4
func TestSearchEndsWithEnoughCandidatesFromARandomNodeOn(t *testing.T) {
	for _, search := range []struct {
		percentage, absolute int32
		want                 string
	}{{0, 3, "node-8 node-9 node-0"}, {40, 1, "node-8 node-9 node-0 node-1"}, {10, 100, "node-8 node-9 node-0 node-1 node-2 node-3 node-4 node-5 node-6 node-7"}} {
		c := newCluster(t, search.percentage, search.absolute, at(8))
		for i := range 10 {
			name := fmt.Sprint("node-", i)
			c.node(name, 1)
			c.run(name, c.pod("on-"+name, 0, 1))
		}
		if got := c.candidates(c.pod("p", 1, 1)); got != search.want {
			t.Errorf("%d %%, at least %d: %s, want %s", search.percentage, search.absolute, got, search.want)
		}
	}
}

// rule: S2.5
func TestSearchContinuesUntilACandidateViolatesNoBudget(t *testing.T) {
	c := newCluster(t, 0, 1, at(0))
	for i := range 5 {
		name := fmt.Sprint("node-", i)
		c.node(name, 1)
		labels := []string{"guarded"}
		if i == 3 {
			labels = nil
		}
		c.run(name, c.pod("on-"+name, 0, 1, labels...))
	}
	c.budget("guarded", 0)
	if got, want := c.candidates(c.pod("p", 1, 1)), "node-0 node-1 node-2 node-3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// rule: S2.20
func TestAPodWithoutCandidatesLosesItsNomination(t *testing.T) {
	c := newCluster(t, 10, 100, at(0))
	c.node("node", 1)
	c.run("node", c.pod("equal", 5, 1))
	c.refuse(c.pod("p", 5, 1))
	nomination, s := c.plugin.PostFilter(&c.cycle)
	if !nomination.Decided || nomination.Node != nil || s.Code != framework.Unschedulable {
		t.Errorf("nomination %+v, status %+v", nomination, s)
	}
}

func TestPodIsHeldBackWhileItsVictimsAreBeingDeleted(t *testing.T) {
	c := newCluster(t, 10, 100, at(0))
	p := c.pod("p", 0, 1)
	if s := c.plugin.PreEnqueue(p); !s.OK() {
		t.Errorf("%+v without victims", s)
	}
	c.busy["p"] = true
	if s := c.plugin.PreEnqueue(p); s.Code != framework.UnschedulableAndUnresolvable || s.Reason != "waiting for the preemption for this pod to be finished" {
		t.Errorf("%+v while victims are being evicted", s)
	}
}

func TestVictimsAreThoseOfTheReference(t *testing.T) {
	compareWithReference(t, 400)
}

func TestCampaignVictimsAreThoseOfTheReference(t *testing.T) {
	campaign.Only(t)
	compareWithReference(t, campaign.Size(20_000, 400))
}

// compareWithReference preempts in random clusters and compares the cost with that of a
// naive implementation.
func compareWithReference(t *testing.T, rounds int) {
	dice := rand.New(rand.NewPCG(1, 2))
	nominated := 0
	for round := range rounds {
		c := newCluster(t, 100, 100, dice)
		nodes := map[string][]*nodetable.Pod{}
		for i := range 1 + dice.IntN(4) {
			name := fmt.Sprint("node-", i)
			c.node(name, 8)
			for left := int64(8); left > 0; {
				cpu := min(1+dice.Int64N(4), left)
				left -= cpu
				labels := []string{"a", "b", "c"}[:dice.IntN(4)]
				pod := c.pod(fmt.Sprintf("pod-%d-%d", i, left), dice.Int32N(4), cpu, labels...)
				if start := dice.Int64N(3); start > 0 {
					pod.Started = time.Unix(start, 0)
				}
				nodes[name] = append(nodes[name], pod)
			}
			c.run(name, nodes[name]...)
		}
		c.budget("a", dice.Int32N(3))
		c.budget("b", dice.Int32N(2))
		p := c.pod("p", dice.Int32N(5), 1+dice.Int64N(9))
		c.refuse(p)
		nomination, _ := c.plugin.PostFilter(&c.cycle)
		want := referenceOf(nodes, p, c.budgets)
		got := ""
		if nomination.Node != nil {
			nominated++
			lower := slices.DeleteFunc(slices.Clone(nodes[nomination.Node.Name.Value()]), func(v *nodetable.Pod) bool { return v.Priority >= p.Priority })
			slices.SortFunc(lower, byImportance)
			got = cost(nomination.Victims, violations(lower, c.budgets))
		}
		if got != want {
			t.Fatalf("round %d: %q, the reference %q", round, got, want)
		}
		if c.table.PodCount() != len(slices.Concat(slices.Collect(maps.Values(nodes))...)) {
			t.Fatalf("round %d: pods are missing after the search", round)
		}
	}
	if nominated < rounds/4 {
		t.Errorf("only %d of the pods preempted", nominated)
	}
}

// referenceOf is the cost of the best node; empty: none.
func referenceOf(nodes map[string][]*nodetable.Pod, p *nodetable.Pod, budgets []*policyv1.PodDisruptionBudget) string {
	best := ""
	for _, pods := range nodes {
		free, lower := int64(8), []*nodetable.Pod{}
		for _, pod := range pods {
			if pod.Priority >= p.Priority {
				free -= pod.Requests.CPU / 1000
			} else {
				lower = append(lower, pod)
			}
		}
		if len(lower) == 0 || free < p.Requests.CPU/1000 {
			continue
		}
		slices.SortFunc(lower, byImportance)
		broken := violations(lower, budgets)
		slices.SortStableFunc(lower, func(a, b *nodetable.Pod) int { return order(broken[b.UID]) - order(broken[a.UID]) })
		var victims []*nodetable.Pod
		for _, pod := range lower {
			if free-pod.Requests.CPU/1000 >= p.Requests.CPU/1000 {
				free -= pod.Requests.CPU / 1000
			} else {
				victims = append(victims, pod)
			}
		}
		if cost := cost(victims, broken); best == "" || cost < best {
			best = cost
		}
	}
	return best
}

func byImportance(a, b *nodetable.Pod) int {
	if a.Priority != b.Priority {
		return int(b.Priority - a.Priority)
	}
	if start, other := startOf(a), startOf(b); start != other {
		return int(start - other)
	}
	return strings.Compare(string(a.UID), string(b.UID))
}

// startOf is the start of a pod in seconds; a pod that has not started is the last.
func startOf(p *nodetable.Pod) int64 {
	if p.Started.IsZero() {
		return 9
	}
	return p.Started.Unix()
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}

// violations are the pods whose deletion violates a budget, by importance.
func violations(pods []*nodetable.Pod, budgets []*policyv1.PodDisruptionBudget) map[types.UID]bool {
	left := map[string]int32{}
	for _, b := range budgets {
		left[b.Name] = b.Status.DisruptionsAllowed
	}
	broken := map[types.UID]bool{}
	for _, pod := range pods {
		app := pod.Object.Labels["app"]
		if allowed, guarded := left[app]; guarded {
			left[app] = allowed - 1
			broken[pod.UID] = allowed-1 < 0
		}
	}
	return broken
}

// cost sorts as preemption compares nodes.
func cost(victims []*nodetable.Pod, broken map[types.UID]bool) string {
	n, sum, highest, first := 0, int64(0), int32(0), int64(9)
	for _, v := range victims {
		n += order(broken[v.UID])
		sum += int64(v.Priority) + 1<<31
		highest = max(highest, v.Priority)
	}
	for _, v := range victims {
		if v.Priority == highest {
			first = min(first, startOf(v))
		}
	}
	return fmt.Sprintf("%03d violations, highest %03d, sum %015d, %03d victims, %d to the start", n, highest, sum, len(victims), 9-first)
}
