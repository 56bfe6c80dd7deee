package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evictd/evictd/nodestatus"
)

const hardMemory = "--eviction-hard=memory.available<64Mi"

// shows says whether the Node has a condition, and its taint, as wanted.
func shows(node *v1.Node, condition v1.NodeConditionType, taint string, raised bool) bool {
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == taint && t.Effect == v1.TaintEffectNoSchedule
	})
	at := slices.IndexFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == condition })
	return at >= 0 && (node.Status.Conditions[at].Status == v1.ConditionTrue) == raised && tainted == raised
}

// awaitNode waits, by a watch, until the Node is as described.
func (a *api) awaitNode(t testing.TB, what string, holds func(*v1.Node) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		watch, err := a.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + a.node})
		if err != nil {
			continue
		}
		for event := range watch.ResultChan() {
			if node, ok := event.Object.(*v1.Node); ok && holds(node) {
				watch.Stop()
				return
			}
		}
	}
	t.Fatalf("waited %v in vain for the Node to show %s", patience, what)
}

func (a *api) awaitPressure(t testing.TB, condition v1.NodeConditionType, taint string, raised bool) {
	t.Helper()
	a.awaitNode(t, fmt.Sprintf("%s and its taint: %t", condition, raised), func(node *v1.Node) bool { return shows(node, condition, taint, raised) })
}

// awaitEvicted waits until the API server shows that a pod was evicted, with the
// message of the status document, and says nothing more of it to evictd.
func (a *api) awaitEvicted(t testing.TB, d *daemon, p *pod) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	await(t, "the API server to show that "+p.Name+" was evicted", func() bool {
		pod = a.pod(t, p.Name)
		return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "Evicted"
	})
	e := d.awaitEviction(p, decided)
	if pod.Status.Message != e.Message {
		t.Errorf("status says %q, evictd %q", pod.Status.Message, e.Message)
	}
	if !strings.Contains(d.Log.String(), strconv.Quote(e.Message)) {
		t.Errorf("the log does not say %q", e.Message)
	}
	target := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
	if target < 0 || pod.Status.Conditions[target].Status != v1.ConditionTrue || pod.Status.Conditions[target].Reason != "TerminationByKubelet" {
		t.Errorf("conditions %v", pod.Status.Conditions)
	}
	return pod
}

// events are the reasons of what was told of an object, with how often.
func (a *api) events(t testing.TB, namespace, name string) map[string]int {
	t.Helper()
	list, err := a.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]int{}
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			reasons[e.Reason]++
		}
	}
	return reasons
}

func (a *api) awaitEvent(t testing.TB, namespace, name, reason string) {
	t.Helper()
	await(t, "event "+reason+" of "+name, func() bool { return a.events(t, namespace, name)[reason] > 0 })
}

func TestPressureAndTheEvictedPodAreSeenInTheCluster(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	leaker := n.createPod(a, "leaker", podSpec{request: "8Mi"}, nil)
	within := n.createPod(a, "within", podSpec{request: "64Mi"}, nil)
	d := n.runWith(a, "--mode=native", hardMemory)
	d.awaitPods(memorySignal, leaker, within)
	a.awaitPressure(t, v1.NodeMemoryPressure, memoryTaint, false)
	a.awaitNode(t, "Ready and what is allocatable", func(node *v1.Node) bool {
		return node.Labels[v1.LabelHostname] == a.node && node.Status.Allocatable.Memory().Value() == nodeMemory-64*mib &&
			slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
	})
	leaker.tell("leak 200 400")
	a.awaitPressure(t, v1.NodeMemoryPressure, memoryTaint, true)
	d.awaitEnd(leaker)
	a.awaitEvicted(t, d, leaker)
	a.awaitEvent(t, a.namespace, "leaker", "Evicted")
	for _, reason := range []string{"EvictionThresholdMet", "NodeHasInsufficientMemory"} {
		a.awaitEvent(t, "default", a.node, reason)
	}
	await(t, "the Lease to tell of the eviction", func() bool {
		lease, err := a.CoordinationV1().Leases("evictd-system").Get(t.Context(), "evictd-"+a.node, metav1.GetOptions{})
		return err == nil && strings.Contains(lease.Annotations[nodestatus.HeadroomAnnotation], string(leaker.UID))
	})
	if _, err := a.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), a.node, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	a.awaitPressure(t, v1.NodeMemoryPressure, memoryTaint, false)
	mustLive(t, within)
	d.await("everything to be told", func(s *nodestatus.Status) bool { return s.API.Connected && s.API.Untold == 0 })
	d.mustCount("evictd_api_connected 1")
}

func TestBackstopUsesItsOwnNamesAndTouchesNothingElse(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	foreign := v1.Taint{Key: "example.com/dedicated", Value: "x", Effect: v1.TaintEffectNoSchedule}
	builtIn := v1.NodeCondition{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory"}
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: a.node}, Spec: v1.NodeSpec{Taints: []v1.Taint{foreign}},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{builtIn}},
	}
	if _, err := a.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leaker := n.createPod(a, "leaker", podSpec{request: "8Mi"}, nil)
	d := n.runWith(a, "--mode=backstop", hardMemory)
	d.awaitPods(memorySignal, leaker)
	leaker.tell("leak 200 400")
	a.awaitPressure(t, "evictd.io/MemoryPressure", "evictd.io/memory-pressure", true)
	d.awaitEnd(leaker)
	a.awaitEvicted(t, d, leaker)
	a.awaitNode(t, "what others wrote", func(node *v1.Node) bool {
		return slices.Contains(node.Spec.Taints, foreign) && slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == builtIn.Type && c.Status == builtIn.Status && c.Reason == builtIn.Reason
		}) && node.Labels[v1.LabelHostname] == ""
	})
}

func TestObserveWritesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	pod := n.createPod(a, "pod", podSpec{request: "8Mi"}, nil)
	d := n.runWith(a, "--mode=observe", "--eviction-hard=memory.available<250Mi")
	pod.do("hold 20")
	d.awaitPods(memorySignal, pod)
	await(t, "evictd to say what it would do", func() bool { return strings.Contains(d.Log.String(), "would evict") })
	if node, err := a.CoreV1().Nodes().Get(t.Context(), a.node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("node %v, %v", node, err)
	}
	if phase := a.pod(t, "pod").Status.Phase; phase == v1.PodFailed {
		t.Errorf("the pod is %s", phase)
	}
	mustLive(t, pod)
}

func TestNodeIsProtectedWithoutAnAPIServerWhichIsToldLater(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	leaker := n.createPod(a, "leaker", podSpec{request: "8Mi"}, nil)
	d := n.runWith(a, "--mode=native", hardMemory)
	d.awaitPods(memorySignal, leaker)
	a.gate.set(false)
	d.await("evictd to know that the API server is away", func(s *nodestatus.Status) bool { return !s.API.Connected && s.API.Error != "" })
	leaker.tell("leak 200 400")
	d.awaitEnd(leaker)
	if phase := a.pod(t, "leaker").Status.Phase; phase == v1.PodFailed {
		t.Error("the API server was told although nobody could reach it")
	}
	d.Kill() // what was not told survives a crash
	a.gate.set(true)
	again := n.runWith(a, "--mode=native", hardMemory)
	a.awaitEvent(t, a.namespace, "leaker", "Evicted")
	await(t, "the pod to be shown as evicted", func() bool {
		s := a.pod(t, "leaker").Status
		return s.Phase == v1.PodFailed && s.Reason == "Evicted" && strings.HasPrefix(s.Message, "The node was low on resource: memory. ")
	})
	again.await("everything to be told", func(s *nodestatus.Status) bool { return s.API.Connected && s.API.Untold == 0 })
	if told := a.events(t, a.namespace, "leaker")["Evicted"]; told != 1 {
		t.Errorf("the eviction was told %d times", told)
	}
}

func TestAPIServerThatIsAwayAtTheStartIsFoundLater(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	a.gate.set(false)
	byManifest := n.start("by-manifest", podSpec{request: "8Mi"})
	inCluster := n.createPod(a, "in-cluster", podSpec{request: "8Mi"}, nil)
	d := n.runWith(a, "--mode=native", hardMemory)
	d.awaitPods(memorySignal, byManifest)
	a.gate.set(true)
	d.awaitPods(memorySignal, byManifest, inCluster)
	a.awaitPressure(t, v1.NodeMemoryPressure, memoryTaint, false)
}

func TestAgentThatIsKilledIsStartedAgainAndToldEverything(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	leaker := n.createPod(a, "leaker", podSpec{request: "8Mi"}, nil)
	d := n.runWith(a, "--mode=native", hardMemory)
	d.awaitPods(memorySignal, leaker)
	leaker.tell("leak 200 400")
	d.awaitEviction(leaker, decided)
	d.mustKillAgent()
	d.awaitEnd(leaker)
	a.awaitEvicted(t, d, leaker)
	a.awaitEvent(t, a.namespace, "leaker", "Evicted")
	d.await("everything to be told", func(s *nodestatus.Status) bool { return s.API.Connected && s.API.Untold == 0 && s.API.Restarts == 1 })
	if told := a.events(t, a.namespace, "leaker")["Evicted"]; told != 1 {
		t.Errorf("the eviction was told %d times", told)
	}
}

func TestAgentHasNoPrivilegesButToRead(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	d := n.runWith(a, "--mode=native")
	d.await("the agent to reach the API server", func(s *nodestatus.Status) bool { return s.API.Connected })
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.agent()))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	const readSearch = "0000000000000004" // 1 << CAP_DAC_READ_SEARCH
	if fields["CapEff"] != readSearch || fields["CapPrm"] != readSearch || fields["NoNewPrivs"] != "1" || strings.HasPrefix(fields["Uid"], "0 ") {
		t.Errorf("CapEff %s, CapPrm %s, NoNewPrivs %s, Uid %s", fields["CapEff"], fields["CapPrm"], fields["NoNewPrivs"], fields["Uid"])
	}
	if adj := score(t, d.agent()); adj < 0 {
		t.Errorf("oom_score_adj %d", adj)
	}
}

func TestDaemonThatIsKilledGoesOnWithItsVictim(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	stubborn := n.createPod(a, "stubborn", podSpec{request: "8Mi"}, nil)
	stubborn.do("ignore-term")
	stubborn.do("hold 20")
	d := n.runWith(a, "--mode=native", "--eviction-hard=memory.available<64Mi", "--eviction-soft=memory.available<250Mi",
		"--eviction-soft-grace-period=memory.available=100ms", "--eviction-max-pod-grace-period=600")
	d.awaitEviction(stubborn, func(e nodestatus.Eviction) bool { return true })
	await(t, "the pod to be shown as evicted", func() bool { return a.pod(t, "stubborn").Status.Phase == v1.PodFailed })
	d.Kill()
	mustLive(t, stubborn)
	again := n.runWith(a, "--mode=native", hardMemory)
	stubborn.mustDie()
	again.await("everything to be told", func(s *nodestatus.Status) bool { return s.API.Connected && s.API.Untold == 0 })
}

func TestSoftVictimKeepsItsGraceOnceItsStatusSaysThatItWasEvicted(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	stubborn := n.createPod(a, "stubborn", podSpec{request: "8Mi", grace: 4}, nil)
	stubborn.do("ignore-term")
	stubborn.do("hold 20")
	d := n.runWith(a, "--mode=native", "--eviction-hard=memory.available<1Mi", "--eviction-soft=memory.available<250Mi",
		"--eviction-soft-grace-period=memory.available=100ms", "--eviction-max-pod-grace-period=60")
	e := d.awaitEnd(stubborn)
	if had := e.Killed.Sub(e.Decided.Time); had < 4*time.Second {
		t.Errorf("killed after %v of its 4 s", had)
	}
	a.awaitEvicted(t, d, stubborn)
}

func TestSoftVictimIsHeldBackByItsBudgetUntilTheDeadline(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	labels := map[string]string{"app": "held"}
	budget := &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "budget"},
		Spec:       policy.PodDisruptionBudgetSpec{MinAvailable: &intstr.IntOrString{IntVal: 1}, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	budgets := a.PolicyV1().PodDisruptionBudgets(a.namespace)
	created, err := budgets.Create(t.Context(), budget, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Status = policy.PodDisruptionBudgetStatus{ObservedGeneration: created.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	if _, err := budgets.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Logf("the API server keeps the status itself: %v", err)
	}
	held := n.createPod(a, "held", podSpec{request: "8Mi"}, labels)
	running := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	if _, err := a.CoreV1().Pods(a.namespace).Patch(t.Context(), "held", types.StrategicMergePatchType, running, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	held.do("hold 20")
	d := n.runWith(a, "--mode=native", "--soft-eviction=api", "--soft-eviction-deadline=2s", "--eviction-hard=memory.available<1Mi",
		"--eviction-soft=memory.available<250Mi", "--eviction-soft-grace-period=memory.available=100ms")
	e := d.awaitEviction(held, decided)
	mustLive(t, held)
	ended := d.awaitEnd(held)
	if waited := ended.Signalled.Sub(e.Decided.Time); waited.Seconds() < 2 {
		t.Errorf("the pod was held back for %v", waited)
	}
	a.awaitEvicted(t, d, held)
	a.awaitEvent(t, a.namespace, "held", "EvictionRequestOverridden")
	d.mustHaveEvicted(held)
}

func TestSoftVictimWithoutABudgetGoesByTheEvictionAPI(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	a := n.newAPI()
	free := n.createPod(a, "free", podSpec{request: "8Mi"}, nil)
	free.do("hold 20")
	d := n.runWith(a, "--mode=native", "--soft-eviction=api", "--eviction-hard=memory.available<1Mi",
		"--eviction-soft=memory.available<250Mi", "--eviction-soft-grace-period=memory.available=100ms")
	d.awaitEnd(free)
	await(t, "the pod to be deleted", func() bool {
		_, err := a.CoreV1().Pods(a.namespace).Get(t.Context(), "free", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if strings.Contains(d.Log.String(), "without leave") {
		t.Error("the deadline passed although there is no budget")
	}
}

// agent is the process id of the daemon's agent.
func (d *daemon) agent() int {
	d.t.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.Pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, file := range children {
		text, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				return pid
			}
		}
	}
	d.t.Fatal("the daemon has no agent")
	return 0
}

func (d *daemon) mustKillAgent() {
	d.t.Helper()
	if err := syscall.Kill(d.agent(), syscall.SIGKILL); err != nil {
		d.t.Fatal(err)
	}
}
