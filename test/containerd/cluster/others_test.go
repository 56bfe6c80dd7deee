package cluster_test

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

// others are scenarios without an eviction, or with another course than that of a scenario.
var others = []struct {
	name string
	test func(*cluster.Cluster)
}{
	{"critical-pod-that-grows", testCriticalPod},
	{"static-pod-that-grows", testStaticPod},
	{"budget-holds-until-it-allows", testBudgetThatIsLifted},
	{"hard-threshold-ends-a-soft-victim", testSoftVictimAtAHardThreshold},
	{"observe", testObserve},
	{"native-is-refused", testNativeIsRefused},
	{"identity-of-the-kubelet", testIdentityOfTheKubelet},
	{"job-is-complete-before-the-report", testJobThatIsComplete},
	{"container-is-restarted", testRestart},
	{"container-is-resized", func(c *cluster.Cluster) { testResize(c, forbidResizes(c)) }},
	{"resize-is-deferred", testResizeThatIsDeferred},
}

func testCriticalPod(c *cluster.Cluster) {
	testExempt(c, "critical", func(namespace string) (remove func()) {
		c.MakeCritical(namespace, c.Template())
		return func() {}
	})
}

func testStaticPod(c *cluster.Cluster) {
	testExempt(c, "static-"+c.Nodes[0].Name, func(namespace string) (remove func()) {
		return c.MakeStatic(namespace, "static", c.Template())
	})
}

// testExempt has a pod that may not be evicted fill the node.
func testExempt(c *cluster.Cluster, name string, make func(namespace string) (remove func())) {
	namespace := c.Namespace("exempt-" + name)
	h := c.Record(namespace)
	e := c.Evictd(hard...)
	c.AwaitNoTaint()
	defer e.Stop()
	defer c.Remove(namespace)
	c.Make(cluster.Deployment, namespace, 3, c.Template("hold 31457280"))
	remove := make(namespace)
	culprit := h.Await("pod "+name+" to be ready", func(s cluster.Sighting) bool { return s.Name == name && cluster.IsReady(s) })
	e.Await("evictd to measure the pods of its node", func(s *nodestatus.Status) bool {
		uids := h.UIDs()
		return len(uids) == 4 && !slices.ContainsFunc(uids, func(uid types.UID) bool {
			of := h.Of(uid)
			last := of[len(of)-1]
			return !cluster.IsReady(last) || last.Spec.NodeName == culprit.Spec.NodeName && !harness.Measured(s, memory.signal, uid)
		})
	})
	c.Pod(culprit.Pod).Do("hold", 240*node.MiB)
	c.Pod(culprit.Pod).Do("leak", 10*node.MiB, 380*node.MiB) // it grows for longer than ten seconds beyond the threshold
	e.Await("evictd to name the pod", func(s *nodestatus.Status) bool {
		return slices.ContainsFunc(s.Outside, func(o nodestatus.Outside) bool {
			return strings.Contains(o.String(), "pod "+namespace+"/"+name)
		})
	})
	if of := h.Of(culprit.UID); slices.ContainsFunc(of, func(s cluster.Sighting) bool { return s.Deleted || cluster.IsTerminal(s) }) {
		c.T.Errorf("pod %s has not run on", name)
	}
	remove()
	if err := c.CoreV1().Pods(namespace).Delete(c.T.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
		c.T.Fatal(err)
	}
	h.AwaitTaint(false)
	var last time.Time
	for _, eviction := range e.Status().Evictions {
		if between := eviction.Decided.Sub(last); between < 10*time.Second {
			c.T.Errorf("pod %s was evicted %v after another one", eviction.Pod, between)
		}
		last = eviction.Decided.Time
	}
}

// testBudgetThatIsLifted has a PodDisruptionBudget hold a victim, until it is deleted.
func testBudgetThatIsLifted(c *cluster.Cluster) {
	s := scenario{name: "held", kind: cluster.Deployment, shortage: memory, budget: true}
	namespace := c.Namespace(s.name)
	h := c.Record(namespace)
	e := c.Evictd(soft...)
	c.AwaitNoTaint()
	defer e.Stop()
	defer c.Remove(namespace)
	victim, _ := s.makeVictim(c, h, namespace)
	e.Await("evictd to measure the pod", func(status *nodestatus.Status) bool { return harness.Measured(status, memory.signal, victim.UID) })
	c.Pod(victim.Pod).Do("leak", rate, holds)
	e.Await("the API server to refuse the eviction", func(s *nodestatus.Status) bool { return s.API.Requests["429"] > 0 })
	if of := h.Of(victim.UID); of[len(of)-1].DeletionTimestamp != nil {
		c.T.Error("the pod is deleted although its budget holds it")
	}
	c.RemoveBudget(namespace)
	eviction := e.Evictd.AwaitEviction(victim.Pod, harness.Gone)
	h.Await("a pod that replaces it to be ready", func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.UID != victim.UID })
	h.AwaitTaint(false)
	s.mustBeEvicted(c, h, victim.UID)
	if overridden := h.Events(victim.UID, "EvictionRequestOverridden"); overridden > 0 {
		c.T.Errorf("%d events EvictionRequestOverridden", overridden)
	}
	h.Check(victim.UID, eviction.Decided.Time)
}

// testSoftVictimAtAHardThreshold has a soft victim, which the kubelet gives a grace period that is
// longer than any wait, grow until a hard threshold is crossed.
func testSoftVictimAtAHardThreshold(c *cluster.Cluster) {
	const longer = 2 * wait.Limit
	seconds := int64(longer.Seconds())
	s := scenario{name: "soft-then-hard", kind: cluster.Deployment, shortage: memory, shape: func(t *v1.PodTemplateSpec) {
		t.Spec.TerminationGracePeriodSeconds = &seconds
	}}
	namespace := c.Namespace(s.name)
	h := c.Record(namespace)
	e := c.Evictd(with(soft, sandbox.MaxPodGrace(strconv.FormatInt(seconds, 10)))...)
	c.AwaitNoTaint()
	defer e.Stop()
	defer c.Remove(namespace)
	victim, _ := s.makeVictim(c, h, namespace)
	e.Await("evictd to measure the pod", func(status *nodestatus.Status) bool { return harness.Measured(status, memory.signal, victim.UID) })
	c.Pod(victim.Pod).Do("ignore-term") // and not the pod that replaces it
	c.Pod(victim.Pod).Do("leak", rate, holds)
	h.Await("the kubelet to have the pod end", func(s cluster.Sighting) bool { return s.UID == victim.UID && s.DeletionTimestamp != nil })
	h.Await("a pod that replaces it to be ready", func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.UID != victim.UID })
	if !c.Runs(victim.Pod) {
		c.T.Error("the pod has not had its grace period")
	}
	c.Pod(victim.Pod).Do("leak", rate, holds+70*node.MiB)
	eviction := e.Evictd.AwaitEviction(victim.Pod, harness.Gone)
	h.AwaitTaint(false)
	s.mustBeEvicted(c, h, victim.UID)
	h.Check(victim.UID, eviction.Decided.Time)
}

// testObserve has a pod cross a threshold of an evictd that only observes.
func testObserve(c *cluster.Cluster) {
	namespace := c.Namespace("observe")
	h := c.Record(namespace)
	e := c.Evictd(with(hard, sandbox.Mode("observe"))...)
	c.AwaitNoTaint()
	defer e.Stop()
	defer c.Remove(namespace)
	s := scenario{kind: cluster.StatefulSet}
	pod, _ := s.makeVictim(c, h, namespace)
	e.Await("evictd to measure the pod", func(status *nodestatus.Status) bool { return harness.Measured(status, memory.signal, pod.UID) })
	c.Pod(pod.Pod).Do("leak", rate, holds)
	e.AwaitLog(`msg="would evict" pod=` + namespace + "/" + pod.Name)
	since := e.Status().Time
	e.Await("the shortage to last", func(s *nodestatus.Status) bool { return s.Time.Sub(since.Time) > patience })
	if events := h.Events(pod.UID, "Evicted"); events > 0 {
		c.T.Errorf("%d events Evicted", events)
	}
	for _, s := range h.Sightings() {
		if s.UID != pod.UID || s.Deleted || cluster.IsTerminal(s) || s.DeletionTimestamp != nil {
			c.T.Errorf("pod %s did not run on", s.Name)
		}
	}
	first, err := c.CoreV1().Nodes().Get(c.T.Context(), c.Nodes[0].Name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	raised := slices.ContainsFunc(first.Status.Conditions, func(condition v1.NodeCondition) bool {
		return strings.HasSuffix(string(condition.Type), "Pressure") && condition.Status != v1.ConditionFalse
	})
	if raised || len(first.Spec.Taints) > 0 {
		c.T.Errorf("the node has conditions %+v and taints %+v", first.Status.Conditions, first.Spec.Taints)
	}
}

// testIdentityOfTheKubelet has evictd's agent use the credentials of the kubelet, which
// NodeRestriction refuses taints and Leases.
func testIdentityOfTheKubelet(c *cluster.Cluster) {
	namespace := c.Namespace("identity-of-the-kubelet")
	h := c.Record(namespace)
	e := c.Evictd(with(hard, sandbox.Kubeconfig(c.API.Kubeconfig(apiserver.Node)))...)
	c.AwaitNoTaint()
	defer e.Stop()
	defer c.Remove(namespace)
	s := scenario{kind: cluster.StatefulSet, shortage: memory}
	victim, _ := s.makeVictim(c, h, namespace)
	e.Await("evictd to measure the pod", func(status *nodestatus.Status) bool { return harness.Measured(status, memory.signal, victim.UID) })
	c.Pod(victim.Pod).Do("leak", rate, holds)
	eviction := e.Evictd.AwaitEviction(victim.Pod, harness.Gone)
	h.Await("a pod that replaces it to be ready", func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.UID != victim.UID })
	status := e.Await("everything to be reported", func(s *nodestatus.Status) bool { return s.API.Untold == 0 })
	for _, what := range []string{"taints", "lease evictd-system/evictd-" + c.Nodes[0].Name} {
		if status.API.Refused[what] == "" {
			c.T.Errorf("%s are not refused: %q", what, status.API.Refused)
		}
	}
	if !h.Tainted(time.Time{}).IsZero() {
		c.T.Error("the node has had a taint")
	}
	s.mustBeEvicted(c, h, victim.UID)
	h.Check(victim.UID, eviction.Decided.Time)
}

// testNativeIsRefused starts evictd in native mode beside the kubelets of the cluster.
func testNativeIsRefused(c *cluster.Cluster) {
	dir := c.T.TempDir()
	args := slices.DeleteFunc(sandbox.Run(dir, sandbox.Mode("native")), func(arg string) bool { return arg == sandbox.Force })
	_, errs, code := harness.Finish(c.T, exec.Command(harness.Program(c.T, "evictd"), args...))
	if code != 2 || !strings.Contains(errs, "--mode native: a kubelet runs here") {
		c.T.Errorf("exit code %d: %s", code, errs)
	}
}
