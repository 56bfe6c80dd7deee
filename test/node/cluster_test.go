package node_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

var hardMemory = sandbox.EvictionHard("memory.available<64Mi")

// awaitEvicted waits until the API server shows that a pod was evicted, with the
// message of the status document, and says nothing more of it to evictd.
func awaitEvicted(a *kube.API, t testing.TB, d *harness.Evictd, p *harness.Pod) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	harness.Await(t, "the API server to show that "+p.Name+" was evicted", func() bool {
		pod = a.Pod(t, p.Name)
		return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "Evicted"
	})
	e := d.AwaitEviction(p, nil)
	if pod.Status.Message != e.Message {
		t.Errorf("status says %q, evictd %q", pod.Status.Message, e.Message)
	}
	if !strings.Contains(d.Log(), strconv.Quote(e.Message)) {
		t.Errorf("the log does not say %q", e.Message)
	}
	target := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
	if target < 0 || pod.Status.Conditions[target].Status != v1.ConditionTrue || pod.Status.Conditions[target].Reason != "TerminationByKubelet" {
		t.Errorf("conditions %v", pod.Status.Conditions)
	}
	return pod
}

// awaitReported deletes a pod that was evicted, whose status evictd would watch for some
// seconds more, and waits until evictd has nothing left to report.
func awaitReported(a *kube.API, d *harness.Evictd, pod string) {
	d.T.Helper()
	a.Delete(d.T, pod)
	d.Await("everything to be reported", reported)
}

func TestPressureAndTheEvictedPodAreSeenInTheCluster(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	leaker := a.CreatePod(n, "leaker", sandbox.Spec{Request: "8Mi"}, nil)
	within := a.CreatePod(n, "within", sandbox.Spec{Request: "64Mi"}, nil)
	d := runWith(n, a, sandbox.Mode("native"), hardMemory)
	d.AwaitPods(memorySignal, leaker, within)
	a.AwaitCondition(t, v1.NodeMemoryPressure, memoryTaint, false)
	a.AwaitNode(t, "Ready and what is allocatable", func(node *v1.Node) bool {
		return node.Labels[v1.LabelHostname] == a.Node && node.Status.Allocatable.Memory().Value() == nodeMemory-64*harness.MiB &&
			slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
	})
	press(leaker, 32)
	a.AwaitCondition(t, v1.NodeMemoryPressure, memoryTaint, true)
	d.AwaitGone(leaker)
	awaitEvicted(a, t, d, leaker)
	a.AwaitEvent(t, a.Namespace, "leaker", "Evicted")
	for _, reason := range []string{"EvictionThresholdMet", "NodeHasInsufficientMemory"} {
		a.AwaitEvent(t, "default", a.Node, reason)
	}
	harness.Await(t, "the Lease to name the evicted pod", func() bool {
		lease, err := a.CoordinationV1().Leases("evictd-system").Get(t.Context(), "evictd-"+a.Node, metav1.GetOptions{})
		return err == nil && strings.Contains(lease.Annotations[nodestatus.HeadroomAnnotation], string(leaker.UID))
	})
	if _, err := a.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), a.Node, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	awaitReported(a, d, "leaker")
	d.AwaitMetric("evictd_api_connected 1")
	d.Stop()
	runWith(n, a, sandbox.Mode("native"), hardMemory, noTransition)
	a.AwaitCondition(t, v1.NodeMemoryPressure, memoryTaint, false)
	harness.MustRun(t, within)
}

func TestBackstopUsesItsOwnNamesAndTouchesNothingElse(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	foreign := v1.Taint{Key: "example.com/dedicated", Value: "x", Effect: v1.TaintEffectNoSchedule}
	builtIn := v1.NodeCondition{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory"}
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: a.Node}, Spec: v1.NodeSpec{Taints: []v1.Taint{foreign}},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{builtIn}},
	}
	if _, err := a.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leaker := a.CreatePod(n, "leaker", sandbox.Spec{Request: "8Mi"}, nil)
	d := runWith(n, a, sandbox.Mode("backstop"), hardMemory)
	d.AwaitPods(memorySignal, leaker)
	press(leaker, 32)
	a.AwaitCondition(t, "evictd.io/MemoryPressure", "evictd.io/memory-pressure", true)
	d.AwaitGone(leaker)
	awaitEvicted(a, t, d, leaker)
	a.AwaitNode(t, "what others wrote", func(node *v1.Node) bool {
		return slices.Contains(node.Spec.Taints, foreign) && slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == builtIn.Type && c.Status == builtIn.Status && c.Reason == builtIn.Reason
		}) && node.Labels[v1.LabelHostname] == ""
	})
}

func TestObserveWritesNothing(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	pod := a.CreatePod(n, "pod", sandbox.Spec{Request: "8Mi"}, nil)
	d := runWith(n, a, sandbox.Mode("observe"), sandbox.EvictionHard("memory.available<250Mi"))
	pod.Do("hold 20Mi")
	d.AwaitPods(memorySignal, pod)
	d.AwaitLog("would evict")
	if node, err := a.CoreV1().Nodes().Get(t.Context(), a.Node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("node %v, %v", node, err)
	}
	if phase := a.Pod(t, "pod").Status.Phase; phase == v1.PodFailed {
		t.Errorf("the pod is %s", phase)
	}
	harness.MustRun(t, pod)
}

func TestNodeIsProtectedWithoutAnAPIServerAndReportedLater(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	leaker := a.CreatePod(n, "leaker", sandbox.Spec{Request: "8Mi"}, nil)
	d := runWith(n, a, sandbox.Mode("native"), hardMemory)
	d.AwaitPods(memorySignal, leaker)
	a.Gate.Set(false)
	d.Await("evictd to know that the API server is away", func(s *nodestatus.Status) bool { return !s.API.Connected && s.API.Error != "" })
	press(leaker, 32)
	d.AwaitGone(leaker)
	if phase := a.Pod(t, "leaker").Status.Phase; phase == v1.PodFailed {
		t.Error("the eviction was reported although the API server could not be reached")
	}
	d.Kill() // what was not reported survives a crash
	a.Gate.Set(true)
	again := runWith(n, a, sandbox.Mode("native"), hardMemory)
	a.AwaitEvent(t, a.Namespace, "leaker", "Evicted")
	harness.Await(t, "the pod to be shown as evicted", func() bool {
		s := a.Pod(t, "leaker").Status
		return s.Phase == v1.PodFailed && s.Reason == "Evicted" && strings.HasPrefix(s.Message, "The node was low on resource: memory. ")
	})
	if n := a.Events(t, a.Namespace, "leaker")["Evicted"]; n != 1 {
		t.Errorf("%d events report the eviction", n)
	}
	awaitReported(a, again, "leaker")
}

// TestPodThatStartsAgainBeforeTheAPIServerKnowsOfItsEvictionIsEnded starts it as a kubelet
// does that does not know of the eviction. No regular pass is due meanwhile.
//
// rule: M.87
func TestPodThatStartsAgainBeforeTheAPIServerKnowsOfItsEvictionIsEnded(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	leaker := a.CreatePod(n, "leaker", sandbox.Spec{Request: "8Mi"}, nil)
	d := runWith(n, a, sandbox.Mode("native"), hardMemory, sandbox.Housekeeping((2 * wait.Limit).String()))
	d.AwaitPods(memorySignal, leaker)
	a.Gate.Set(false)
	press(leaker, 32)
	d.AwaitGone(leaker)
	for range 3 {
		n.StartIn(leaker.Pod, leaker.Group, nil).AwaitEnd()
	}
	a.Gate.Set(true)
	awaitEvicted(a, t, d, leaker)
	d.MustHaveEvicted(leaker)
	a.AwaitEvent(t, a.Namespace, "leaker", "Evicted")
	awaitReported(a, d, "leaker")
	if n := a.Events(t, a.Namespace, "leaker")["Evicted"]; n != 1 {
		t.Errorf("%d events report the eviction", n)
	}
	d.Stop()
	again := 0
	_, steps := replay(n)
	for _, step := range steps {
		again += len(step.EndAgain)
	}
	if again == 0 { // one kill may end several starts
		t.Error("the recording has no start after the eviction")
	}
}

func TestAPIServerThatIsAwayAtTheStartIsFoundLater(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	a.Gate.Set(false)
	byManifest := n.Start("by-manifest", sandbox.Spec{Request: "8Mi"})
	inCluster := a.CreatePod(n, "in-cluster", sandbox.Spec{Request: "8Mi"}, nil)
	d := runWith(n, a, sandbox.Mode("native"), hardMemory)
	d.AwaitPods(memorySignal, byManifest)
	a.Gate.Set(true)
	d.AwaitPods(memorySignal, byManifest, inCluster)
	a.AwaitCondition(t, v1.NodeMemoryPressure, memoryTaint, false)
}

func TestAgentThatIsKilledIsStartedAgainAndSentEverything(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	leaker := a.CreatePod(n, "leaker", sandbox.Spec{Request: "8Mi"}, nil)
	d := runWith(n, a, sandbox.Mode("native"), hardMemory)
	d.AwaitPods(memorySignal, leaker)
	press(leaker, 32)
	d.AwaitEviction(leaker, nil)
	d.KillAgent()
	d.AwaitGone(leaker)
	awaitEvicted(a, t, d, leaker)
	a.AwaitEvent(t, a.Namespace, "leaker", "Evicted")
	d.Await("the agent to be restarted", func(s *nodestatus.Status) bool { return s.API.Restarts == 1 })
	awaitReported(a, d, "leaker")
	if n := a.Events(t, a.Namespace, "leaker")["Evicted"]; n != 1 {
		t.Errorf("%d events report the eviction", n)
	}
}

func TestAgentHasNoPrivilegesButToRead(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	d := runWith(n, a, sandbox.Mode("native"))
	d.Await("the agent to reach the API server", func(s *nodestatus.Status) bool { return s.API.Connected })
	status := require.ReadFile(t, fmt.Sprintf("/proc/%d/status", d.Agent()))
	fields := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	const readSearch = "0000000000000004" // 1 << CAP_DAC_READ_SEARCH
	if fields["CapEff"] != readSearch || fields["CapPrm"] != readSearch || fields["NoNewPrivs"] != "1" || strings.HasPrefix(fields["Uid"], "0 ") {
		t.Errorf("CapEff %s, CapPrm %s, NoNewPrivs %s, Uid %s", fields["CapEff"], fields["CapPrm"], fields["NoNewPrivs"], fields["Uid"])
	}
	if adj := score(t, d.Agent()); adj < 0 {
		t.Errorf("oom_score_adj %d", adj)
	}
}

func TestDaemonThatIsKilledContinuesWithItsVictim(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	stubborn := a.CreatePod(n, "stubborn", sandbox.Spec{Request: "8Mi", Grace: 600}, nil)
	stubborn.Do("ignore-term")
	stubborn.Do("hold 20Mi")
	d := runWith(n, a, sandbox.Mode("native"), sandbox.EvictionHard("memory.available<64Mi"), sandbox.EvictionSoft("memory.available<250Mi"),
		sandbox.SoftGrace("memory.available=100ms"), sandbox.MaxPodGrace("600"))
	d.AwaitEviction(stubborn, func(e nodestatus.Eviction) bool { return true })
	harness.Await(t, "the pod to be shown as being evicted", func() bool { return len(a.Pod(t, "stubborn").Status.Conditions) > 0 })
	if phase := a.Pod(t, "stubborn").Status.Phase; phase == v1.PodFailed {
		t.Error("the API server shows that the pod has failed while it runs")
	}
	d.Kill()
	harness.MustRun(t, stubborn)
	again := runWith(n, a, sandbox.Mode("native"), hardMemory)
	stubborn.AwaitEnd()
	awaitReported(a, again, "stubborn")
}

func TestSoftVictimKeepsItsGraceOnceItsStatusSaysThatItIsATarget(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	stubborn := a.CreatePod(n, "stubborn", sandbox.Spec{Request: "8Mi", Grace: 1}, nil)
	stubborn.Do("ignore-term")
	stubborn.Do("hold 20Mi")
	d := runWith(n, a, sandbox.Mode("native"), sandbox.EvictionHard("memory.available<1Mi"), sandbox.EvictionSoft("memory.available<250Mi"),
		sandbox.SoftGrace("memory.available=100ms"), sandbox.MaxPodGrace("60"))
	e := d.AwaitGone(stubborn)
	if had := e.Killed.Sub(e.Decided.Time); had < time.Second {
		t.Errorf("killed after %v of its 1 s", had)
	}
	awaitEvicted(a, t, d, stubborn)
}

// startHeld starts a pod whose disruption budget does not allow to evict it.
func startHeld(n *harness.Node, a *kube.API) *harness.Pod {
	t := n.T
	t.Helper()
	labels := map[string]string{"app": "held"}
	budget := &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "budget"},
		Spec:       policy.PodDisruptionBudgetSpec{MinAvailable: &intstr.IntOrString{IntVal: 1}, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	budgets := a.PolicyV1().PodDisruptionBudgets(a.Namespace)
	created, err := budgets.Create(t.Context(), budget, metav1.CreateOptions{})
	require.NoError(t, err)
	created.Status = policy.PodDisruptionBudgetStatus{ObservedGeneration: created.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	if _, err := budgets.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Logf("the API server keeps the status itself: %v", err)
	}
	held := a.CreatePod(n, "held", sandbox.Spec{Request: "8Mi"}, labels)
	running := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	if _, err := a.CoreV1().Pods(a.Namespace).Patch(t.Context(), "held", types.StrategicMergePatchType, running, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	held.Do("hold 20Mi")
	return held
}

// softAPI are the flags of an evictd that asks the Eviction API until a deadline.
func softAPI(deadline string) []string {
	return []string{
		sandbox.Mode("native"), sandbox.SoftEviction("api"), sandbox.SoftDeadline(deadline), sandbox.EvictionHard("memory.available<1Mi"),
		sandbox.EvictionSoft("memory.available<250Mi"), sandbox.SoftGrace("memory.available=100ms"),
	}
}

func TestSoftVictimIsHeldBackByItsBudgetUntilTheDeadline(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	held := startHeld(n, a)
	d := runWith(n, a, softAPI("500ms")...)
	e := d.AwaitGone(held)
	if waited := e.Signalled.Sub(e.Decided.Time); waited < 500*time.Millisecond {
		t.Errorf("the pod was held back for %v", waited)
	}
	awaitEvicted(a, t, d, held)
	a.AwaitEvent(t, a.Namespace, "held", "EvictionRequestOverridden")
	d.MustHaveEvicted(held)
}

// TestSoftVictimThatItsBudgetHoldsBackIsNotReportedAsEvicted has evictd start again without the
// threshold: the pod is spared. The event of the threshold follows that of an eviction.
//
// rule: M.102
func TestSoftVictimThatItsBudgetHoldsBackIsNotReportedAsEvicted(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	held := startHeld(n, a)
	d := runWith(n, a, softAPI("24h")...)
	d.AwaitEviction(held, nil)
	a.AwaitEvent(t, "default", a.Node, "EvictionThresholdMet")
	d.Stop()
	d = runWith(n, a, sandbox.Mode("native"), sandbox.EvictionHard("memory.available<1Mi"), noTransition)
	d.AwaitPods(memorySignal, held)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	if events := a.Events(t, a.Namespace, "held"); events["Evicted"] > 0 {
		t.Errorf("events %v of a pod that is not evicted", events)
	}
	d.MustHaveEvicted()
	harness.MustRun(t, held)
}

func TestSoftVictimWithoutABudgetIsEvictedByTheEvictionAPI(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	free := a.CreatePod(n, "free", sandbox.Spec{Request: "8Mi"}, nil)
	free.Do("hold 20Mi")
	d := runWith(n, a, softAPI("24h")...)
	d.AwaitGone(free)
	harness.Await(t, "the pod to be deleted", func() bool {
		_, err := a.CoreV1().Pods(a.Namespace).Get(t.Context(), "free", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if strings.Contains(d.Log(), "without leave") {
		t.Error("the deadline passed although there is no budget")
	}
}
