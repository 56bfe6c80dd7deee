package cluster_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	hook    bool     // the pod has a preStop hook, which runs
	crash   bool     // evictd and the kubelet are killed once the victim is chosen, and started again
	offline bool     // the API server stops before the crossing, until the kubelet has started the victim again
}

var scenarios = []scenario{
	{name: "deployment-whose-pod-ignores-sigterm", kind: cluster.Deployment, flags: hard, orders: []string{"ignore-term"}},
	{name: "statefulset", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}},
	{name: "daemonset", kind: cluster.DaemonSet, flags: hard, orders: []string{"ignore-term"}},
	{name: "job", kind: cluster.Job, flags: hard, orders: []string{"on TERM /term 100ms"}},
	{name: "exit-0-on-sigterm", kind: cluster.Deployment, flags: hard},
	{name: "soft-with-a-long-grace", kind: cluster.Deployment, flags: soft, orders: []string{"on TERM /term 15s"}, hook: true},
	{name: "soft-without-eviction-api", kind: cluster.StatefulSet, flags: append(soft[:len(soft):len(soft)], sandbox.SoftEviction("direct")), orders: []string{"on TERM /term 2s"}, hook: true},
	{name: "killed-in-the-middle", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}, crash: true},
	{name: "without-api-server", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}, offline: true},
}

// rule: 5.22
func TestWhatTheAPIServerShowsOfAnEvictionIsTrueAndStays(t *testing.T) {
	c := cluster.Start(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { s.run(c.With(t)) })
	}
	t.Run("critical-pod-that-grows", func(t *testing.T) { testCriticalPod(c.With(t)) })
}

// testCriticalPod has a pod that may not be evicted fill the node.
func testCriticalPod(c *cluster.Cluster) {
	const namespace = "critical"
	h := c.Record(c.Namespace(namespace))
	e := c.Evictd(hard...)
	c.AwaitNoTaint()
	defer e.Stop()
	defer c.Remove(namespace)
	c.Make(cluster.Deployment, namespace, 3, c.Template("hold 31457280"))
	c.MakeCritical(namespace, c.Template())
	culprit := h.Await("the critical pod to be ready", func(s cluster.Sighting) bool { return s.Name == "critical" && cluster.IsReady(s) })
	e.Await("evictd to measure four pods", func(s *nodestatus.Status) bool {
		return !slices.ContainsFunc(h.UIDs(), func(uid types.UID) bool { return !harness.Measured(s, memory, uid) })
	})
	c.Pod(culprit.Pod).Do("hold", 240*node.MiB)
	c.Pod(culprit.Pod).Do("leak", 10*node.MiB, 380*node.MiB) // it grows for longer than ten seconds beyond the threshold
	e.Await("evictd to name the critical pod", func(s *nodestatus.Status) bool {
		return slices.ContainsFunc(s.Outside, func(o nodestatus.Outside) bool { return strings.Contains(o.String(), "pod critical/critical") })
	})
	if err := c.CoreV1().Pods(namespace).Delete(c.T.Context(), "critical", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
		c.T.Fatal(err)
	}
	h.AwaitTaint(true)
	h.AwaitTaint(false)
	var last time.Time
	for _, eviction := range e.Status().Evictions {
		if between := eviction.Decided.Sub(last); between < 10*time.Second {
			c.T.Errorf("pod %s was evicted %v after another one", eviction.Pod, between)
		}
		last = eviction.Decided.Time
	}
}

func (s *scenario) run(c *cluster.Cluster) {
	namespace := c.Namespace(s.name)
	h := c.Record(namespace)
	e := c.Evictd(s.flags...)
	c.AwaitNoTaint()
	defer c.Remove(namespace)
	template, shared := c.Template(s.orders...), c.T.TempDir()
	if s.hook {
		cluster.OnStop(&template, shared, "write /shared/hook 1 0")
	}
	c.Make(s.kind, namespace, 1, template)
	first := c.Nodes[0].Name
	victim := h.Await("a pod to be ready on "+first, func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.Spec.NodeName == first })
	e.Await("evictd to measure the pod", func(s *nodestatus.Status) bool { return harness.Measured(s, memory, victim.UID) })
	before := h.UIDs()
	e, eviction := s.evict(c, e, victim)
	defer e.Stop()
	if !s.offline { // else the shortage may be over when the API server is back
		h.AwaitTaint(true)
	}
	h.Await("a pod that replaces it to be ready", func(s cluster.Sighting) bool { return cluster.IsReady(s) && !slices.Contains(before, s.UID) })
	e.Await("everything to be reported", func(s *nodestatus.Status) bool { return s.API.Untold == 0 })
	if !s.offline {
		h.AwaitTaint(false)
	}
	mustBeEvicted(c, h.Of(victim.UID))
	if _, err := os.Stat(filepath.Join(shared, "hook")); s.hook && err != nil {
		c.T.Errorf("the preStop hook of the victim has not run: %v", err)
	}
	h.Check(victim.UID, eviction.Decided.Time)
}

// evict has the victim fill the node, and waits until no process of it is left. It returns
// the evictd that runs then.
func (s *scenario) evict(c *cluster.Cluster, e *node.Evictd, victim cluster.Sighting) (now *node.Evictd, eviction nodestatus.Eviction) {
	press := func() { c.Pod(victim.Pod).Do("leak", rate, holds) }
	gone := func() { eviction = e.Evictd.AwaitEviction(victim.Pod, harness.Gone) }
	switch {
	case s.crash:
		press()
		eviction = e.Evictd.AwaitEviction(victim.Pod, nil)
		e.Kill()
		c.RestartKubelet()
		e = c.Evictd(s.flags...)
		e.Await("everything to be reported", func(s *nodestatus.Status) bool { return s.API.Untold == 0 })
	case s.offline:
		c.Pause(func() {
			press()
			gone()
			const restarted = "an evicted pod has processes again"
			c.Await("the kubelet to start the victim twice", func() bool { return strings.Count(e.Log(), restarted) >= 2 })
		})
	default:
		press()
		gone()
	}
	return e, eviction
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
