package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/lifecycle"
)

func node(name, zone string, conditions ...v1.NodeCondition) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: start}},
		Status:     v1.NodeStatus{Conditions: conditions},
	}
	if zone != "" {
		n.Labels = map[string]string{v1.LabelTopologyZone: zone}
	}
	return n
}

func condition(kind v1.NodeConditionType, status v1.ConditionStatus) v1.NodeCondition {
	return v1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: metav1.Time{Time: start}}
}

func ready(status v1.ConditionStatus) v1.NodeCondition { return condition(v1.NodeReady, status) }

func lease(renewed time.Time, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}, LeaseDurationSeconds: &seconds}}
}

// cluster has nodes with all updates applied.
type cluster struct {
	*lifecycle.Monitor
	seen []*lifecycle.NodeState
}

func clusterOf(nodes ...*v1.Node) *cluster {
	c := &cluster{Monitor: lifecycle.NewMonitor()}
	for _, n := range nodes {
		c.seen = append(c.seen, &lifecycle.NodeState{Node: n})
	}
	return c
}

func (c *cluster) pass(seconds int) (updates []lifecycle.Update) {
	var all []lifecycle.NodeState
	for _, s := range c.seen {
		all = append(all, *s)
	}
	updates = c.Pass(after(seconds), all)
	for _, u := range updates {
		for _, s := range c.seen {
			if s.Node.Name == u.Node.Name {
				s.Node = written(u)
			}
		}
	}
	return updates
}

func written(u lifecycle.Update) *v1.Node {
	n := u.Node.DeepCopy()
	for _, c := range u.Conditions {
		if i := slices.IndexFunc(n.Status.Conditions, func(was v1.NodeCondition) bool { return was.Type == c.Type }); i >= 0 {
			n.Status.Conditions[i] = c
		} else {
			n.Status.Conditions = append(n.Status.Conditions, c)
		}
	}
	if u.Retaint {
		n.Spec.Taints = u.Taints
	}
	return n
}

// taints are the taints of a node as text.
func taints(n *v1.Node) string {
	var texts []string
	for _, t := range n.Spec.Taints {
		texts = append(texts, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
	}
	return strings.Join(texts, " ")
}

func (c *cluster) allowed() (names []string) {
	for _, s := range c.seen {
		if strings.Contains(taints(s.Node), "NoExecute") {
			names = append(names, s.Node.Name)
		}
	}
	return names
}

// rule: S7.1
func TestNoScheduleTaintsAreThoseThatFollow(t *testing.T) {
	cordoned := node("n", "", ready(v1.ConditionTrue))
	cordoned.Spec.Unschedulable = true
	tainted := func(n *v1.Node, taints ...v1.Taint) *v1.Node {
		n.Spec.Taints = taints
		return n
	}
	noSchedule := func(key string) v1.Taint { return v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule} }
	for _, test := range []struct {
		name     string
		node     *v1.Node
		expected string
	}{
		{"ready", node("n", "", ready(v1.ConditionTrue)), ""},
		{"not ready", node("n", "", ready(v1.ConditionFalse)), "not-ready:NoSchedule"},
		{"unreachable", node("n", "", ready(v1.ConditionUnknown)), "unreachable:NoSchedule"},
		{"pressure", node("n", "", ready(v1.ConditionTrue), condition(v1.NodeMemoryPressure, v1.ConditionTrue), condition(v1.NodeDiskPressure, v1.ConditionTrue), condition(v1.NodePIDPressure, v1.ConditionTrue), condition(v1.NodeNetworkUnavailable, v1.ConditionTrue)),
			"memory-pressure:NoSchedule disk-pressure:NoSchedule pid-pressure:NoSchedule network-unavailable:NoSchedule"},
		{"pressure unknown", node("n", "", ready(v1.ConditionTrue), condition(v1.NodeMemoryPressure, v1.ConditionUnknown)), ""},
		{"own names", node("n", "", ready(v1.ConditionTrue), condition("evictd.io/MemoryPressure", v1.ConditionTrue)), "evictd.io/memory-pressure:NoSchedule"},
		{"a node that thrashes", node("n", "", ready(v1.ConditionTrue), condition("evictd.io/MemoryContention", v1.ConditionTrue)), "evictd.io/memory-contention:NoSchedule"},
		{"cordoned", cordoned, "unschedulable:NoSchedule"},
		{"what does not follow goes", tainted(node("n", "", ready(v1.ConditionTrue)), noSchedule(v1.TaintNodeMemoryPressure), noSchedule(v1.TaintNodeNotReady), noSchedule("evictd.io/disk-pressure")), ""},
		{"other effects of the same key stay", tainted(node("n", "", ready(v1.ConditionTrue)), v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectPreferNoSchedule}, noExecute(v1.TaintNodeDiskPressure)),
			"memory-pressure:PreferNoSchedule disk-pressure:NoExecute"},
		{"others' taints stay", tainted(node("n", "", ready(v1.ConditionFalse)), noSchedule("example.com/mine")), "example.com/mine:NoSchedule not-ready:NoSchedule"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := lifecycle.NewMonitor()
			u, any := m.Node(start, lifecycle.NodeState{Node: test.node})
			n := written(u)
			if taints(n) != test.expected || any != (test.expected != taints(test.node)) {
				t.Errorf("taints %q, changed %t; expected %q", taints(n), any, test.expected)
			}
			if u, any := m.Node(start, lifecycle.NodeState{Node: n}); any {
				t.Errorf("not settled: %+v", u)
			}
		})
	}
}

// rule: S7.2
func TestASilentNodeTurnsUnknown(t *testing.T) {
	c := clusterOf(node("n", "", ready(v1.ConditionTrue), condition(v1.NodeMemoryPressure, v1.ConditionTrue)), node("alive", "", ready(v1.ConditionTrue)))
	renew := func(seconds int) { c.seen[1].Lease = lease(after(seconds), 40) }
	c.pass(0)
	for at := 5; at <= 50; at += 5 {
		renew(at)
		if u := c.pass(at); len(u) > 0 {
			t.Fatalf("after %d s: %+v", at, u)
		}
	}
	renew(51)
	u := c.pass(51)
	if len(u) != 1 || u[0].Node.Name != "n" || !u[0].Lost {
		t.Fatalf("updates %+v, expected one that says that n is lost", u)
	}
	n := c.seen[0].Node
	if len(n.Status.Conditions) != 4 {
		t.Errorf("conditions %+v, expected four", n.Status.Conditions)
	}
	for _, c := range n.Status.Conditions {
		reason, message := "NodeStatusUnknown", "Kubelet stopped posting node status."
		if c.Type == v1.NodeDiskPressure || c.Type == v1.NodePIDPressure {
			reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
		}
		if c.Status != v1.ConditionUnknown || c.Reason != reason || c.Message != message || !c.LastTransitionTime.Time.Equal(after(51)) {
			t.Errorf("condition %+v", c)
		}
	}
	if got := taints(n); got != "unreachable:NoSchedule unreachable:NoExecute" {
		t.Errorf("taints %q: the pressure taint goes, unreachable comes", got)
	}
	renew(55)
	if u := c.pass(55); len(u) > 0 {
		t.Errorf("not settled: %+v", u)
	}

	n = n.DeepCopy()
	n.Status.Conditions[0] = ready(v1.ConditionTrue)
	n.Status.Conditions[0].LastHeartbeatTime = metav1.Time{Time: after(56)}
	c.seen[0].Node = n
	renew(60)
	if c.pass(60); taints(c.seen[0].Node) != "" {
		t.Errorf("taints %q although it is back", taints(c.seen[0].Node))
	}
}

// rule: S7.4
func TestARenewedLeaseIsASignOfLife(t *testing.T) {
	c := clusterOf(node("n", "", ready(v1.ConditionTrue)))
	for at := 0; at < 300; at += 10 {
		c.seen[0].Lease = lease(after(at-1000), 40) // older than the clock
		if u := c.pass(at); len(u) > 0 {
			t.Fatalf("after %d s: %+v", at, u)
		}
	}
}

// rule: S7.3
func TestANodeThatNeverPostedHasAMinute(t *testing.T) {
	c := clusterOf(node("n", ""), node("alive", "", ready(v1.ConditionTrue)))
	c.seen[0].Lease, c.seen[1].Lease = lease(start, 40), lease(start, 40)
	if u := c.pass(60); len(u) > 0 {
		t.Errorf("after 60 s: %+v", u)
	}
	c.pass(61)
	if n := c.seen[0].Node; len(n.Status.Conditions) != 4 || n.Status.Conditions[0].Reason != "NodeStatusNeverUpdated" || n.Status.Conditions[0].LastHeartbeatTime != n.CreationTimestamp {
		t.Errorf("conditions %+v", n.Status.Conditions)
	}
	c.pass(66)
	if n := c.seen[0].Node; taints(n) != "unreachable:NoSchedule unreachable:NoExecute" {
		t.Errorf("taints %q", taints(n))
	}
}

// rule: S7.5
func TestASilentEvictdLosesItsConditionsAndTaints(t *testing.T) {
	c := clusterOf(node("n", "", ready(v1.ConditionTrue), condition("evictd.io/MemoryPressure", v1.ConditionTrue), condition("evictd.io/DiskPressure", v1.ConditionFalse)))
	c.seen[0].Agent = lease(start, 20)
	c.pass(0)
	if got := taints(c.seen[0].Node); got != "evictd.io/memory-pressure:NoSchedule" {
		t.Fatalf("taints %q", got)
	}
	c.seen[0].Lease = lease(after(20), 40)
	if u := c.pass(20); len(u) > 0 {
		t.Fatalf("after its duration: %+v", u)
	}
	c.pass(21)
	n := c.seen[0].Node
	if got := taints(n); got != "" {
		t.Errorf("taints %q", got)
	}
	for _, c := range n.Status.Conditions[1:] {
		if c.Status != v1.ConditionUnknown || c.Reason != "NodeStatusUnknown" || c.Message != "evictd stopped posting node status." {
			t.Errorf("condition %+v", c)
		}
	}
	if n.Status.Conditions[0].Status != v1.ConditionTrue {
		t.Error("the node is not ready for the silence of evictd alone")
	}
}

// unready makes nodes of a zone, the first ones not ready.
func unready(zone string, down, all int) (nodes []*v1.Node) {
	for i := range all {
		status := v1.ConditionTrue
		if i < down {
			status = v1.ConditionFalse
		}
		nodes = append(nodes, node(fmt.Sprintf("%s%02d", zone, i), zone, ready(status)))
	}
	return nodes
}

// rule: S7.6
// rule: S7.7
func TestNoExecuteTaintsComeAtARateByZone(t *testing.T) {
	for _, test := range []struct {
		name     string
		down     int
		all      int
		expected map[int]int // tainted nodes by second
	}{
		{"one every ten seconds", 5, 20, map[int]int{0: 1, 5: 1, 10: 2, 20: 3, 45: 5}},
		{"two of three are no disruption", 2, 3, map[int]int{0: 1, 10: 2}},
		{"a small zone that is partially disrupted: none", 6, 10, map[int]int{0: 0, 45: 0}},
		{"a large one: one every 100 seconds", 30, 51, map[int]int{0: 1, 95: 1, 100: 2, 200: 3}},
		{"fully disrupted, while other zones are not: as ever", 5, 5, map[int]int{0: 1, 10: 2, 20: 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := clusterOf(append(unready("a", test.down, test.all), node("b", "b", ready(v1.ConditionTrue)))...)
			for at := 0; at <= 200; at += 5 {
				for _, s := range c.seen {
					s.Lease = lease(after(at), 40)
				}
				c.pass(at)
				if expected, checked := test.expected[at]; checked && len(c.allowed()) != expected {
					t.Errorf("after %d s: %v tainted, expected %d", at, c.allowed(), expected)
				}
			}
		})
	}
}

func TestARateThatFallsHoldsAlsoForTheNextNode(t *testing.T) {
	c := clusterOf(append(unready("a", 5, 20), node("b", "b", ready(v1.ConditionTrue)))...)
	c.pass(0)
	for _, s := range c.seen[5:15] {
		s.Node.Status.Conditions[0].Status = v1.ConditionFalse
	}
	c.pass(5)
	c.pass(40)
	if got := c.allowed(); len(got) != 1 {
		t.Errorf("%v tainted, expected the one from before", got)
	}
}

// rule: S7.8
func TestWithoutAReadyNodeNoNodeGetsANoExecuteTaint(t *testing.T) {
	c := clusterOf(slices.Concat(unready("a", 3, 20), unready("b", 0, 2))...)
	c.pass(0)
	if got := c.allowed(); len(got) != 1 {
		t.Fatalf("%v tainted", got)
	}
	// All heartbeats end at once.
	c.pass(51)
	if got := c.allowed(); len(got) != 0 {
		t.Errorf("%v tainted where no node is ready", got)
	}
	if got := taints(c.seen[20].Node); got != "unreachable:NoSchedule" {
		t.Errorf("taints %q", got)
	}
	if u := c.pass(200); len(u) > 0 {
		t.Errorf("not settled: %+v", u)
	}
	// One node sends a heartbeat: the grace periods of the others restart.
	n := c.seen[20].Node.DeepCopy()
	n.Status.Conditions[0] = ready(v1.ConditionTrue)
	n.Status.Conditions[0].LastHeartbeatTime = metav1.Time{Time: after(205)}
	c.seen[20].Node = n
	c.pass(205)
	if got := c.allowed(); len(got) != 2 {
		t.Errorf("%v tainted, expected one of each zone", got)
	}
	c.seen[3].Node.Status.Conditions[0].Status = v1.ConditionTrue // by another client
	if c.pass(250); c.seen[3].Node.Status.Conditions[0].Status != v1.ConditionTrue {
		t.Error("set to Unknown before its grace period began again")
	}
}

func TestATaintedNodeSwapsItsTaintAtOnceAndLosesItWhenReady(t *testing.T) {
	c := clusterOf(append(unready("a", 3, 20), node("b", "b", ready(v1.ConditionTrue)))...)
	c.pass(0)
	c.seen[0].Node.Status.Conditions[0].Status = v1.ConditionUnknown
	c.pass(1)
	if got := taints(c.seen[0].Node); got != "unreachable:NoSchedule unreachable:NoExecute" {
		t.Errorf("taints %q", got)
	}
	c.seen[0].Node.Status.Conditions[0].Status = v1.ConditionTrue
	u, _ := c.Node(after(2), *c.seen[0])
	if got := taints(written(u)); got != "" {
		t.Errorf("taints %q although it is ready", got)
	}
}

func TestExcludedNodesDoNotCountForTheirZone(t *testing.T) {
	nodes := unready("a", 6, 10)
	for _, n := range nodes[:5] {
		n.Labels["node.kubernetes.io/exclude-disruption"] = ""
	}
	c := clusterOf(nodes...)
	if c.pass(0); len(c.allowed()) != 1 {
		t.Errorf("%v tainted, expected one", c.allowed())
	}
}

func TestANodeThatIsGoneIsForgotten(t *testing.T) {
	c := clusterOf(append(unready("a", 1, 3), node("b", "b", ready(v1.ConditionTrue)))...)
	c.pass(0)
	gone := c.seen[1]
	c.seen = slices.Delete(c.seen, 1, 2)
	c.pass(100)
	fresh := *gone
	fresh.Node = gone.Node.DeepCopy()
	fresh.Agent = lease(after(99), 40)
	if u, any := c.Node(after(101), fresh); any {
		t.Errorf("a node of the same name is judged by the old one's silence: %+v", u)
	}
}
