package suite_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	scheduling "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

// schedule runs evictd-scheduler, alone, under its own identity.
func (a *api) schedule(args ...string) *harness.Process {
	a.t.Helper()
	a.grant()
	return scheduler(a.t, append(a.Args(apiserver.Scheduler), args...)...)
}

// scheduleThrough does the same through a proxy.
func (a *api) scheduleThrough(p *proxy) *harness.Process {
	a.t.Helper()
	return scheduler(a.t, sandbox.Server(p.URL))
}

func (a *api) createNodes(nodes ...*v1.Node) {
	a.t.Helper()
	for _, n := range nodes {
		if _, err := a.admin.CoreV1().Nodes().Create(a.t.Context(), n, metav1.CreateOptions{}); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *api) createPods(pods ...*v1.Pod) {
	a.t.Helper()
	for _, p := range pods {
		if _, err := a.admin.CoreV1().Pods(p.Namespace).Create(a.t.Context(), p, metav1.CreateOptions{}); err != nil {
			a.t.Fatal(err)
		}
	}
}

// pod is nil where there is none.
func (a *api) pod(name string) *v1.Pod {
	a.t.Helper()
	p, err := a.admin.CoreV1().Pods("default").Get(a.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(a.t, err)
	return p
}

// awaitBound waits until the pod has a node and returns its name.
func (a *api) awaitBound(name string) (node string) {
	a.t.Helper()
	await(a.t, "pod "+name+" to be bound", func() bool {
		if p := a.pod(name); p != nil {
			node = p.Spec.NodeName
		}
		return node != ""
	})
	return node
}

// awaitRefused waits until the pod has the condition that it fits no node.
func (a *api) awaitRefused(name string) (message string) {
	a.t.Helper()
	await(a.t, "pod "+name+" to be refused", func() bool {
		for _, c := range a.pod(name).Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
				message = c.Message
			}
		}
		return message != ""
	})
	return message
}

// awaitEvent waits for an event of a reason about a pod and returns its text.
func (a *api) awaitEvent(reason, name string) (note string) {
	a.t.Helper()
	await(a.t, "event "+reason+" of "+name, func() bool {
		events, err := a.admin.EventsV1().Events("default").List(a.t.Context(), metav1.ListOptions{})
		require.NoError(a.t, err)
		for _, e := range events.Items {
			if e.Reason == reason && e.Regarding.Name == name {
				note = e.Note
				return true
			}
		}
		return false
	})
	return note
}

func scheduledBy(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SchedulerName = name }
}

func ofClass(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.PriorityClassName = name }
}

func tolerating(key string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}} }
}

func TestSchedulerBindsWhatFitsAndSaysWhyTheRestDoesNot(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		a.createNodes(node("n1"), node("n2"))
		a.createPods(pod("of-another", "100m", scheduledBy("another")))
		a.schedule()
		a.createPods(pod("small", "1"), pod("giant", "64"))
		a.awaitBound("small")
		if note := a.awaitEvent("Scheduled", "small"); !strings.HasPrefix(note, "Successfully assigned default/small to n") {
			t.Errorf("the event of the binding says %q", note)
		}
		const why = "0/2 nodes are available: 2 Insufficient cpu."
		if message := a.awaitRefused("giant"); !strings.HasPrefix(message, why) {
			t.Errorf("the condition says %q, want %q", message, why)
		}
		if note := a.awaitEvent("FailedScheduling", "giant"); !strings.HasPrefix(note, why) {
			t.Errorf("the event says %q, want %q", note, why)
		}
		big := node("n3")
		big.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("128")
		a.createNodes(big)
		if bound := a.awaitBound("giant"); bound != "n3" {
			t.Errorf("the giant is on %s", bound)
		}
		if p := a.pod("of-another"); p.Spec.NodeName != "" || len(p.Status.Conditions) != 0 {
			t.Errorf("a pod of another scheduler was touched: node %q, conditions %v", p.Spec.NodeName, p.Status.Conditions)
		}
	})
}

func TestPressureTaintKeepsNewcomersAwayUntilItIsGone(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		const key = "node.kubernetes.io/memory-pressure"
		n := node("n1")
		n.Spec.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}}
		a.createNodes(n)
		a.schedule()
		a.createPods(pod("newcomer", ""), pod("tolerant", "", tolerating(key)))
		a.awaitBound("tolerant")
		if message := a.awaitRefused("newcomer"); !strings.Contains(message, "untolerated taint") {
			t.Errorf("the newcomer was refused for %q", message)
		}
		if _, err := a.admin.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		a.awaitBound("newcomer")
	})
}

func TestPodsLeaveForATaintThatTheyDoNotTolerateAndConditionsBecomeTaints(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		const own, key = "example.org/leave", "node.kubernetes.io/pid-pressure"
		a.createNodes(node("n1"))
		a.schedule("--controllers=taint-eviction,node-lifecycle")
		a.createPods(pod("leaves", "1"), pod("stays", "1", tolerating(own)))
		a.awaitBound("leaves")
		a.awaitBound("stays")
		patch := func(body string, subresources ...string) {
			t.Helper()
			if _, err := a.admin.CoreV1().Nodes().Patch(t.Context(), "n1", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresources...); err != nil {
				t.Fatal(err)
			}
		}
		patch(`{"spec":{"taints":[{"key":"` + own + `","effect":"NoExecute"}]}}`)
		await(t, "pod leaves to be gone", func() bool { return a.pod("leaves") == nil })
		a.awaitEvent("TaintManagerEviction", "leaves")
		if p := a.pod("stays"); p == nil || p.DeletionTimestamp != nil {
			t.Error("the pod that tolerates the taint had to leave")
		}
		patch(`{"status":{"conditions":[{"type":"PIDPressure","status":"True","lastHeartbeatTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}]}}`, "status")
		await(t, "the condition to be a taint", func() bool {
			n, err := a.admin.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			require.NoError(t, err)
			return slices.ContainsFunc(n.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == key && taint.Effect == v1.TaintEffectNoSchedule })
		})
	})
}

func TestPreemptionTakesTheVictimThatNoBudgetGuards(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		for name, value := range map[string]int32{"low": 1, "high": 1000} {
			class := &scheduling.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
			if _, err := a.admin.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		a.createNodes(node("n1"), node("n2"))
		for _, name := range []string{"guarded", "unguarded"} {
			victim := pod(name, "3", ofClass("low"))
			victim.Spec.NodeName = map[string]string{"guarded": "n1", "unguarded": "n2"}[name]
			a.createPods(victim)
			running := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
			if _, err := a.admin.CoreV1().Pods("default").Patch(t.Context(), name, types.StrategicMergePatchType, running, metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
		}
		a.guard("guarded")
		a.schedule()
		a.createPods(pod("important", "2", ofClass("high")))
		if bound := a.awaitBound("important"); bound != "n2" {
			t.Errorf("it went to %s, where the budget guards the victim", bound)
		}
		if a.pod("guarded") == nil || a.pod("unguarded") != nil {
			t.Error("the wrong pod was preempted")
		}
		a.awaitEvent("Preempted", "unguarded")
	})
}

// guard makes a budget for the pods of a label that allows no disruption.
func (a *api) guard(app string) {
	a.t.Helper()
	one := intstr.FromInt32(1)
	budget := &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       policy.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
	budgets := a.admin.PolicyV1().PodDisruptionBudgets("default")
	if _, err := budgets.Create(a.t.Context(), budget, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	status := []byte(`{"status":{"observedGeneration":1,"expectedPods":1,"currentHealthy":1,"desiredHealthy":1,"disruptionsAllowed":0}}`)
	if _, err := budgets.Patch(a.t.Context(), app, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		a.t.Fatal(err)
	}
}

func TestSecondSchedulerTakesOverFromALeaderThatIsKilled(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		a.grant()
		file := filepath.Join(t.TempDir(), "scheduler.yaml")
		const config = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, resourceName: evictd-scheduler, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
`
		require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
		args := append([]string{sandbox.Config(file), "--leader-elect"}, a.Args(apiserver.Scheduler)...)
		a.createNodes(node("n1"))
		leader := scheduler(t, args...)
		a.createPods(pod("first", "100m"))
		a.awaitBound("first")
		scheduler(t, args...)
		leader.Kill()
		a.createPods(pod("second", "100m"))
		a.awaitBound("second")
	})
}

func TestSchedulerContinuesAfterTheAPIServerWasKilled(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		a.createNodes(node("n1"))
		a.schedule()
		a.createPods(pod("before", "100m"))
		a.awaitBound("before")
		a.Kill()
		require.NoError(t, a.Start())
		if bound := a.pod("before").Spec.NodeName; bound != "n1" {
			t.Errorf("a binding that was acknowledged is lost: node %q", bound)
		}
		a.createPods(pod("after", "100m"))
		a.awaitBound("after")
	})
}

func TestSchedulerListsAgainWhereItsWatchHasExpired(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		p := a.between(apiserver.Admin)
		a.createNodes(node("n1"))
		a.scheduleThrough(p)
		a.createPods(pod("before", "100m"))
		a.awaitBound("before")
		var expired atomic.Int32
		p.inject(func(w http.ResponseWriter, r *http.Request) bool {
			q := r.URL.Query()
			if q.Get("watch") == "" || q.Get("sendInitialEvents") != "" || !strings.HasSuffix(r.URL.Path, "/pods") || expired.Add(1) > 1 {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(map[string]any{"type": watch.Error, "object": failure(http.StatusGone, metav1.StatusReasonExpired)})
			return true
		})
		p.CloseClientConnections()
		a.createPods(pod("meanwhile", "100m"))
		a.awaitBound("meanwhile")
		await(t, "the watch to expire", func() bool { return expired.Load() > 0 })
		a.createPods(pod("after", "100m"))
		a.awaitBound("after")
	})
}

func TestSchedulerTriesAgainWhereABindingMeetsAConflict(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		p := a.between(apiserver.Admin)
		var refused atomic.Int32
		p.inject(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/binding") || refused.Add(1) > 1 {
				return false
			}
			refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
			return true
		})
		a.createNodes(node("n1"))
		a.scheduleThrough(p)
		a.createPods(pod("contested", "100m"))
		a.awaitBound("contested")
		if note := a.awaitEvent("FailedScheduling", "contested"); !strings.Contains(note, "a fault of the test") {
			t.Errorf("the event of the conflict says %q", note)
		}
	})
}

func TestSchedulerWaitsOutAStormOfTooManyRequests(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		const pods, storm = 20, 3 * time.Second
		p := a.between(apiserver.Admin)
		a.createNodes(node("n1"))
		a.scheduleThrough(p)
		var refused atomic.Int32
		ends := time.Now().Add(storm)
		p.inject(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet || time.Now().After(ends) {
				return false
			}
			refused.Add(1)
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
			return true
		})
		for i := range pods {
			a.createPods(pod(fmt.Sprintf("pod-%d", i), "100m"))
		}
		for i := range pods {
			a.awaitBound(fmt.Sprintf("pod-%d", i))
		}
		// Every request, of which a pod has a binding and an event, may come once
		// a second, and one time more.
		if most := int32(2 * pods * (int(storm/time.Second) + 2)); refused.Load() > most {
			t.Errorf("%d requests ran into the storm, more than %d: Retry-After is not waited for", refused.Load(), most)
		}
	})
}
