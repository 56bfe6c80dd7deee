package cycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// mustPlace schedules a pod on a node; an empty node is any.
func (c *cluster) mustPlace(pod *nodetable.Pod, node string) Result {
	c.Helper()
	r := c.SchedulingCycle(pod, start)
	if !r.Status.OK() {
		c.Fatalf("pod %s: %s", pod, r.Message)
	}
	if got := r.Binding.Node.Name.Value(); node != "" && got != node {
		c.Fatalf("pod %s is on %s, want %s", pod, got, node)
	}
	return r
}

// mustRefuse expects a pod to be unschedulable with a message.
func (c *cluster) mustRefuse(pod *nodetable.Pod, text string, rejectors ...string) Result {
	c.Helper()
	r := c.SchedulingCycle(pod, start)
	if r.Status.OK() {
		c.Fatalf("pod %s is on %s", pod, r.Binding.Node.Name.Value())
	}
	if r.Message != text {
		c.Errorf("pod %s: %q, want %q", pod, r.Message, text)
	}
	if !slices.Equal(r.Rejectors, rejectors) {
		c.Errorf("pod %s: rejected by %q, want %q", pod, r.Rejectors, rejectors)
	}
	return r
}

func cordoned(n *v1.Node) { n.Spec.Unschedulable = true }

// rule: S4.5
func TestSampleContinuesWhereTheLastOneEnded(t *testing.T) {
	c := newCluster(t)
	c.keepsCycles = true
	c.enough = func(int) int { return 2 }
	for i := range 6 {
		c.node(fmt.Sprint("n", i), func(n *v1.Node) { n.Labels[v1.LabelTopologyZone] = fmt.Sprint("zone-", i/2) })
	}
	c.node("full", cordoned, func(n *v1.Node) { n.Labels[v1.LabelTopologyZone] = "zone-0" })
	var seen []string
	for i := range 4 {
		r := c.mustPlace(c.pod(fmt.Sprint("p", i)), "")
		var names []string
		for row := range r.Cycle.Evaluated.All() {
			names = append(names, c.table.Node(row).Name.Value())
		}
		slices.Sort(names)
		seen = append(seen, strings.Join(names, " "))
	}
	// The order is n0 n2 n4 n1 n3 n5 full.
	want := []string{"n0 n2", "n1 n4", "n3 n5", "full n0 n2"}
	if !slices.Equal(seen, want) {
		t.Errorf("looked at %q, want %q", seen, want)
	}
}

// gate is a plugin at Reserve and Permit with fixed results that records its calls.
type gate struct {
	name            string
	notes           *[]string
	reserve, permit framework.Status
	wait            time.Duration
}

func (g *gate) Name() string { return g.name }

func (g *gate) Reserve(framework.Assignment) framework.Status {
	*g.notes = append(*g.notes, "reserve "+g.name)
	return g.reserve
}

func (g *gate) Unreserve(framework.Assignment) { *g.notes = append(*g.notes, "unreserve "+g.name) }

func (g *gate) Permit(framework.Assignment) (framework.Status, time.Duration) {
	return g.permit, g.wait
}

func gated(gates ...*gate) func(*framework.Plan) {
	return func(plan *framework.Plan) {
		for _, g := range gates {
			for _, point := range []framework.Point{framework.Reserve, framework.Permit} {
				plan[point] = append(plan[point], framework.Enabled{Plugin: g})
			}
		}
	}
}

func TestFailedReservationIsTakenBackInReverse(t *testing.T) {
	var notes []string
	one := &gate{name: "one", notes: &notes}
	two := &gate{name: "two", notes: &notes, reserve: framework.Status{Code: framework.Unschedulable, Reason: "no such thing left"}}
	c := newCluster(t, gated(one, two))
	c.node("a")
	c.mustRefuse(c.pod("p"), "0/1 nodes are available: 1 no such thing left.", "two")
	if want := []string{"reserve one", "reserve two", "unreserve two", "unreserve one"}; !slices.Equal(notes, want) {
		t.Errorf("plugins received %q, want %q", notes, want)
	}
	two.reserve = framework.AsStatus(errors.New("out of order"))
	c.mustRefuse(c.pod("p"), `running Reserve plugin "two": out of order`)
	if n := c.table.PodCount(); n != 0 {
		t.Errorf("%d pods are on nodes, want none", n)
	}
}

func TestPodWaitsUntilEveryPluginAllowsIt(t *testing.T) {
	wait := framework.Status{Code: framework.Wait}
	one, two := &gate{name: "one", notes: new([]string), permit: wait, wait: time.Minute}, &gate{name: "two", notes: new([]string), permit: wait, wait: time.Hour}
	c := newCluster(t, gated(one, two))
	c.node("a")
	p, q := c.pod("p"), c.pod("q")
	for _, pod := range []*nodetable.Pod{p, q} {
		c.Queue.Add(start, pod)
		if a := c.ScheduleOne(start, c.Queue.Pop(start)); a.Outcome != Waiting || !c.IsWaiting(pod.UID) {
			t.Fatalf("pod %s: %v, want it to wait", pod, a.Outcome)
		}
	}
	if n := c.table.PodCount(); n != 2 {
		t.Fatalf("%d pods are on the table, want both that wait", n)
	}
	if c.Allow(p.UID, "one") != nil {
		t.Fatal("one of two plugins suffices")
	}
	if c.Allow(p.UID, "two") == nil || c.IsWaiting(p.UID) {
		t.Fatal("the pod still waits")
	}
	at, uid, plugin, found := c.permitDeadline()
	if !found || at != start.Add(time.Minute) || uid != q.UID || plugin != "one" {
		t.Fatalf("next deadline %v of %s by %s", at, uid, plugin)
	}
	c.Expire(at)
	if e := c.Queue.Get(q.UID); c.IsWaiting(q.UID) || c.table.PodCount() != 1 || e.Place() != queue.Unschedulable {
		t.Errorf("%d pods are on nodes, want 1; pod q is %s", c.table.PodCount(), e.Place())
	}
	if _, _, _, found := c.permitDeadline(); found {
		t.Error("a pod still waits")
	}
}

func TestLongestWaitIsFifteenMinutes(t *testing.T) {
	c := newCluster(t, gated(&gate{name: "patient", notes: new([]string), permit: framework.Status{Code: framework.Wait}, wait: time.Hour}))
	c.node("a")
	c.SchedulingCycle(c.pod("p"), start)
	if at, _, _, _ := c.permitDeadline(); at != start.Add(15*time.Minute) {
		t.Errorf("deadline %v", at)
	}
}

func TestBindingThatFailedIsForgotten(t *testing.T) {
	var notes []string
	c := newCluster(t, gated(&gate{name: "one", notes: &notes}))
	c.node("a")
	p := c.pod("p")
	r := c.mustPlace(p, "a")
	if status := r.Binding.Run(context.Background()); !status.OK() || c.bound[p.UID] != "a" {
		t.Fatalf("bound to %q: %v", c.bound[p.UID], status)
	}
	again := c.mustPlace(p, "a")
	status := again.Binding.Run(context.Background())
	if status.Code != framework.Error || status.Plugin != "DefaultBinder" {
		t.Fatalf("bound twice: %v", status)
	}
	c.forget(again.Binding)
	if n := c.table.PodCount(); n != 0 || notes[len(notes)-1] != "unreserve one" {
		t.Errorf("%d pods are on nodes, the plugins received %q", n, notes)
	}
}

func TestAttemptsAllocateNothing(t *testing.T) {
	c := newCluster(t)
	for i := range 200 {
		c.node(fmt.Sprint("n", i))
	}
	pods := make([]*nodetable.Pod, 100)
	for i := range pods {
		pods[i] = c.pod(fmt.Sprint("p", i))
	}
	next := 0
	step := func() {
		p := pods[next%len(pods)]
		c.table.Displace(p.UID)
		c.SchedulingCycle(p, start)
		next++
	}
	for range 200 {
		step()
	}
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Errorf("%v allocations an attempt", n)
	}
}

// TestKeptScoresAllocateNothing schedules pods whose scores are not kept, and
// pods of a size whose scores are.
func TestKeptScoresAllocateNothing(t *testing.T) {
	for name, size := range map[string]func(i int) string{
		"sizes that never repeat": func(i int) string { return fmt.Sprint(i, "Ki") },
		"one size":                func(int) string { return "1Mi" },
	} {
		c := newCluster(t)
		for i := range 300 {
			c.node(fmt.Sprint("n", i))
		}
		const attempts = 300
		pods := make([]*nodetable.Pod, 2*attempts)
		for i := range pods {
			pods[i] = c.pod(fmt.Sprint(i), requests("1m", size(i+1)))
		}
		c.table.Place(c.pod("running"), 0) // keeps the set of labels
		next := 0
		step := func() {
			p := pods[next]
			c.SchedulingCycle(p, start)
			c.table.Displace(p.UID)
			next++
		}
		for range attempts - 1 {
			step()
		}
		if allocations := testing.AllocsPerRun(attempts, step); allocations > 0 {
			t.Errorf("%s: %v allocations an attempt", name, allocations)
		}
	}
}
