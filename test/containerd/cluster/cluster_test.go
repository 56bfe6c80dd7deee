package cluster_test

import (
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/harness"
)

func TestMain(m *testing.M) { os.Exit(node.Main(m)) }

const memory = "memory.available"

// hard is the threshold that a victim of holds bytes crosses, and soft the one that it
// crosses with a grace of 1 s.
var (
	hard = []string{sandbox.EvictionHard(memory + "<150Mi")}
	soft = []string{
		sandbox.EvictionHard(memory + "<40Mi"), sandbox.EvictionSoft(memory + "<150Mi"), sandbox.SoftGrace(memory + "=1s"), sandbox.MaxPodGrace("30"),
	}
)

// What a victim holds, and how fast it begins to, in bytes a second.
const (
	holds = 400 * node.MiB
	rate  = 400 * node.MiB
)

// scenario is an eviction on the first node.
type scenario struct {
	name    string
	kind    cluster.Kind
	flags   []string // of evictd
	orders  []string // of every pod of the controller
	stays   bool     // the pod that replaces the victim is for the first node, too
	offline bool     // the API server stops before the crossing, until the kubelet has started the victim again
}

var scenarios = []scenario{
	{name: "deployment-whose-pod-ignores-sigterm", kind: cluster.Deployment, flags: hard, orders: []string{"ignore-term"}},
	{name: "statefulset", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}},
	{name: "daemonset", kind: cluster.DaemonSet, flags: hard, orders: []string{"ignore-term"}, stays: true},
	{name: "job", kind: cluster.Job, flags: hard, orders: []string{"on TERM /term 100ms"}},
	{name: "exit-0-on-sigterm", kind: cluster.Deployment, flags: hard},
	{name: "soft-with-a-long-grace", kind: cluster.Deployment, flags: soft, orders: []string{"on TERM /term 15s"}},
	{name: "without-api-server", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}, offline: true},
}

func TestWhatTheAPIServerShowsOfAnEvictionIsTrueAndStays(t *testing.T) {
	c := cluster.Start(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { s.run(c.With(t)) })
	}
}

func (s *scenario) run(c *cluster.Cluster) {
	namespace := c.Namespace(s.name)
	h := c.Record(namespace)
	e := c.Evictd(s.flags...)
	defer e.Stop()
	defer c.Remove(namespace)
	c.Make(s.kind, namespace, c.Template(s.orders...))
	first := c.Nodes[0].Name
	victim := h.Await("a pod to be ready on "+first, func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.Spec.NodeName == first })
	e.Await("evictd to measure the pod", func(s *nodestatus.Status) bool { return harness.Measured(s, memory, victim.UID) })
	eviction := s.evict(c, e, victim)
	h.AwaitTaint(true)
	h.Await("a pod that replaces it to be ready", func(other cluster.Sighting) bool {
		return other.UID != victim.UID && cluster.IsReady(other) && (other.Spec.NodeName == first) == s.stays
	})
	e.Await("everything to be reported", func(s *nodestatus.Status) bool { return s.API.Untold == 0 })
	h.AwaitTaint(false)
	of := h.Of(victim.UID)
	mustBeEvicted(c, of)
	h.Check(victim.UID, eviction.Decided.Time)
}

// evict has the victim fill the node, and waits until no process of it is left.
func (s *scenario) evict(c *cluster.Cluster, e *node.Evictd, victim cluster.Sighting) (eviction nodestatus.Eviction) {
	pressed := func() {
		c.Pod(victim.Pod).Do("leak", rate, holds)
		eviction = e.Evictd.AwaitEviction(victim.Pod, harness.Gone)
	}
	if !s.offline {
		pressed()
		return eviction
	}
	c.Pause(func() {
		pressed()
		const restarted = "an evicted pod has processes again"
		c.Await("the kubelet to start the victim twice", func() bool { return strings.Count(e.Log(), restarted) >= 2 })
	})
	return eviction
}

// mustBeEvicted fails the test where the sightings of a victim do not say that it was
// evicted, and why, as long as it existed.
func mustBeEvicted(c *cluster.Cluster, of []cluster.Sighting) {
	c.T.Helper()
	const why = "The node was low on resource: memory. "
	last := of[len(of)-1]
	target := v1.PodCondition{}
	for _, condition := range last.Status.Conditions {
		if condition.Type == v1.DisruptionTarget {
			target = condition
		}
	}
	if s := last.Status; target.Status != v1.ConditionTrue || !last.Deleted && (s.Phase != v1.PodFailed || s.Reason != "Evicted" || !strings.HasPrefix(s.Message, why)) {
		c.T.Errorf("the pod is %s, reason %q, message %q, with condition %+v", s.Phase, s.Reason, s.Message, target)
	}
}
