package kube_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/lifecycle/kube"
)

// fixture is a fake API with the controllers.
type fixture struct {
	t        *testing.T
	client   *fake.Clientset
	recorder *events.FakeRecorder
	metrics  *metric.Set
}

// withControllers runs a test with the controllers in simulated time.
func withControllers(t *testing.T, cfg kube.Config, act func(b *fixture), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		b := &fixture{t, fake.NewClientset(objects...), events.NewFakeRecorder(1000), metric.NewSet()}
		factory := informers.NewSharedInformerFactory(b.client, 0)
		controllers := kube.New(b.client, factory, b.recorder, b.metrics, slog.New(slog.NewTextHandler(io.Discard, nil)), cfg)
		factory.Start(ctx.Done())
		ended := make(chan error)
		go func() { ended <- controllers.Run(ctx) }()
		time.Sleep(time.Second) // interval of WaitForCacheSync
		synctest.Wait()
		act(b)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		factory.Shutdown()
	})
}

// pass advances the time; the named nodes renew their Leases.
func (b *fixture) pass(d time.Duration, alive ...string) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, name := range alive {
			lease := leaseOf(name)
			if _, err := b.client.CoordinationV1().Leases(lease.Namespace).Update(b.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				b.t.Fatal(err)
			}
		}
		time.Sleep(min(10*time.Second, time.Until(end)))
	}
	synctest.Wait()
}

func leaseOf(node string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: node},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}},
	}
}

func (b *fixture) node(name string) *v1.Node {
	b.t.Helper()
	node, err := b.client.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return node
}

func (b *fixture) taints(name string) string {
	b.t.Helper()
	var texts []string
	for _, t := range b.node(name).Spec.Taints {
		texts = append(texts, t.ToString())
	}
	slices.Sort(texts)
	return strings.ReplaceAll(strings.Join(texts, " "), "node.kubernetes.io/", "")
}

func (b *fixture) setTaints(name string, taints ...v1.Taint) {
	b.t.Helper()
	node := b.node(name)
	node.Spec.Taints = taints
	if _, err := b.client.CoreV1().Nodes().Update(b.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

func (b *fixture) pods() (names []string) {
	b.t.Helper()
	pods, err := b.client.CoreV1().Pods("").List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names
}

// recorded lists the recorded events.
func (b *fixture) recorded() (texts []string) {
	for {
		select {
		case text := <-b.recorder.Events:
			texts = append(texts, text)
		default:
			return texts
		}
	}
}

func node(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now(), ResourceVersion: "1"},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
}

func pod(name, node string, seconds ...int64) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{NodeName: node},
		Status:     v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
	for _, s := range seconds {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: &s})
	}
	return p
}

var mine = v1.Taint{Key: "mine", Effect: v1.TaintEffectNoExecute}

func expect[T comparable](t *testing.T, what string, got []T, expected ...T) {
	t.Helper()
	if !slices.Equal(got, expected) {
		t.Errorf("%s: %v, expected %v", what, got, expected)
	}
}

// rule: S6.8
func TestPodsLeaveATaintedNodeWhenTheirTimeIsOver(t *testing.T) {
	withControllers(t, kube.Config{TaintEviction: true}, func(b *fixture) {
		b.setTaints("n", mine)
		expect(t, "pods at once", b.pods(), "elsewhere", "patient", "quick")
		expect(t, "events", b.recorded(), "Normal TaintManagerEviction Marking for deletion Pod default/none")
		b.pass(10 * time.Second)
		expect(t, "pods after 10 s", b.pods(), "elsewhere", "patient")
		b.recorded()
		b.setTaints("n")
		expect(t, "events", b.recorded(), "Normal TaintManagerEviction Cancelling deletion of Pod default/patient")
		b.pass(time.Hour)
		expect(t, "pods after an hour", b.pods(), "elsewhere", "patient")
		var patched []string
		for _, action := range b.client.Actions() {
			if p, ok := action.(clienttesting.PatchAction); ok && p.GetSubresource() == "status" && strings.Contains(string(p.GetPatch()), `"reason":"DeletionByTaintManager"`) {
				patched = append(patched, p.GetName())
			}
		}
		expect(t, "DisruptionTarget of", patched, "none", "quick")
	}, node("n"), node("m"), pod("none", "n"), pod("quick", "n", 10), pod("patient", "n", 60), pod("elsewhere", "m"))
}

func TestAPodComesToATaintedNode(t *testing.T) {
	withControllers(t, kube.Config{TaintEviction: true}, func(b *fixture) {
		b.setTaints("n", mine)
		b.pass(time.Minute)
		if _, err := b.client.CoreV1().Pods("default").Create(t.Context(), pod("late", "n", 30), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.pass(29 * time.Second)
		expect(t, "pods after 29 s", b.pods(), "late")
		b.pass(time.Second)
		expect(t, "pods after 30 s", b.pods())
	}, node("n"))
}

func TestAnEvictionThatFailsIsTriedAgainAndBlocksNothing(t *testing.T) {
	withControllers(t, kube.Config{TaintEviction: true}, func(b *fixture) {
		failures := 3
		b.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if failures == 0 || action.(clienttesting.DeleteAction).GetName() != "unlucky" {
				return false, nil, nil
			}
			failures--
			return true, nil, apierrors.NewInternalError(errors.New("the store is gone"))
		})
		b.setTaints("n", mine)
		expect(t, "pods at once", b.pods(), "unlucky")
		b.pass(14 * time.Second)
		expect(t, "pods after 14 s", b.pods(), "unlucky")
		b.pass(time.Second)
		expect(t, "pods after 15 s", b.pods())
	}, node("n"), pod("lucky", "n"), pod("unlucky", "n"))
}

// TestNoNodeIsMarkedWhileTheWatchOfLeasesIsBehind has one node whose renewed Lease is not watched, and one that falls
// silent meanwhile.
//
// rule: S6.10
func TestNoNodeIsMarkedWhileTheWatchOfLeasesIsBehind(t *testing.T) {
	withControllers(t, kube.Config{NodeLifecycle: true}, func(b *fixture) {
		renewed := leaseOf("unwatched")
		renewed.ResourceVersion = "later"
		behind := true
		b.client.PrependReactor("get", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return behind && action.(clienttesting.GetAction).GetName() == "unwatched", renewed, nil
		})
		b.pass(time.Minute, "a", "b", "later")
		b.pass(5*time.Minute, "a", "b")
		if unwatched, later := b.taints("unwatched"), b.taints("later"); unwatched+later != "" {
			t.Errorf("taints %q and %q while the API server has a Lease that was not watched", unwatched, later)
		}
		behind = false
		renewed.Spec.RenewTime.Time = time.Now()
		if _, err := b.client.CoordinationV1().Leases(renewed.Namespace).Update(t.Context(), renewed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.pass(20*time.Second, "a", "b")
		if unwatched, later := b.taints("unwatched"), b.taints("later"); unwatched != "" || later == "" {
			t.Errorf("taints %q and %q when it was watched", unwatched, later)
		}
	}, node("unwatched"), node("later"), node("a"), node("b"), leaseOf("unwatched"), leaseOf("later"), leaseOf("a"), leaseOf("b"))
}

func TestASilentNodeLosesItsPodsAndComesBack(t *testing.T) {
	withControllers(t, kube.Config{TaintEviction: true, NodeLifecycle: true}, func(b *fixture) {
		b.pass(50*time.Second, "a", "b")
		if got := b.taints("silent"); got != "" {
			t.Errorf("taints %q within the grace period", got)
		}
		b.pass(10*time.Second, "a", "b")
		if got := b.taints("silent"); got != "unreachable:NoExecute unreachable:NoSchedule" {
			t.Errorf("taints %q", got)
		}
		expect(t, "events", b.recorded(), "Normal NodeNotReady Node silent status is now: NodeNotReady")
		p, err := b.client.CoreV1().Pods("default").Get(t.Context(), "there", metav1.GetOptions{})
		if err != nil || p.Status.Conditions[0].Status != v1.ConditionFalse {
			t.Errorf("pod there: %+v, %v; expected it not ready", p.Status.Conditions, err)
		}
		b.pass(300*time.Second, "a", "b")
		expect(t, "pods", b.pods(), "here")
		back := b.node("silent")
		for i := range back.Status.Conditions {
			if c := &back.Status.Conditions[i]; c.Type == v1.NodeReady {
				c.Status, c.LastHeartbeatTime = v1.ConditionTrue, metav1.Now()
			}
		}
		back.ResourceVersion = "back"
		if _, err := b.client.CoreV1().Nodes().UpdateStatus(t.Context(), back, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.pass(0)
		if got := b.taints("silent"); got != "" {
			t.Errorf("taints %q although it is back", got)
		}
		if got := b.taints("a"); got != "" {
			t.Errorf("taints %q of a node that was never silent", got)
		}
	}, node("silent"), node("a"), node("b"), leaseOf("silent"), leaseOf("a"), leaseOf("b"), pod("there", "silent", 300), pod("here", "a", 300))
}

// TestMetricsHaveKubeControllerManagersNames compares the metrics after a node lost
// its heartbeats and a pod was evicted with two requests. A region and its zone are
// one label with a zero byte between.
func TestMetricsHaveKubeControllerManagersNames(t *testing.T) {
	zoned := node("silent")
	zoned.Labels = map[string]string{v1.LabelTopologyRegion: "region", v1.LabelTopologyZone: "zone"}
	withControllers(t, kube.Config{TaintEviction: true, NodeLifecycle: true}, func(b *fixture) {
		failed := false
		b.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			first := !failed
			failed = true
			return first, nil, apierrors.NewInternalError(errors.New("the store is gone"))
		})
		b.pass(2*time.Minute, "a", "b")
		page := httptest.NewRecorder()
		b.metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		golden.Check(t, "testdata/metrics.txt", strings.ReplaceAll(page.Body.String(), "\x00", `\x00`))
	}, zoned, node("a"), node("b"), leaseOf("silent"), leaseOf("a"), leaseOf("b"), pod("there", "silent", 30), pod("stays", "silent", 300), pod("here", "a", 30))
}

func TestTheListOfMetricsHasTheControllers(t *testing.T) {
	set := metric.NewSet()
	kube.New(fake.NewClientset(), informers.NewSharedInformerFactory(fake.NewClientset(), 0), nil, set, slog.New(slog.DiscardHandler), kube.Config{TaintEviction: true, NodeLifecycle: true})
	golden.Section(t, "../../../docs/metrics.md", "controllers", set.Table())
}

func TestATaintFollowsItsConditionAtOnce(t *testing.T) {
	pressed := node("n")
	pressed.Status.Conditions = append(pressed.Status.Conditions, v1.NodeCondition{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue})
	withControllers(t, kube.Config{NodeLifecycle: true}, func(b *fixture) {
		if got := b.taints("n"); got != "memory-pressure:NoSchedule" {
			t.Errorf("taints %q", got)
		}
	}, pressed)
}

// TestAnAPIServerThatWasAwayMakesNoNodeSilent: the grace periods restart after an
// outage.
func TestAnAPIServerThatWasAwayMakesNoNodeSilent(t *testing.T) {
	withControllers(t, kube.Config{NodeLifecycle: true}, func(b *fixture) {
		var unavailable atomic.Bool
		b.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return unavailable.Load(), nil, errors.New("connection refused")
		})
		b.pass(time.Minute, "a", "b")
		unavailable.Store(true)
		b.pass(3 * time.Minute)
		unavailable.Store(false)
		b.pass(9 * time.Second) // within the renewal interval
		b.pass(time.Minute, "a")
		expect(t, "taints", []string{b.taints("a"), b.taints("b")}, "", "unreachable:NoExecute unreachable:NoSchedule")
		expect(t, "events", b.recorded(), "Normal NodeNotReady Node b status is now: NodeNotReady")
	}, node("a"), node("b"), leaseOf("a"), leaseOf("b"), pod("p", "a"))
}

func TestANodeThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	cordoned := node("n")
	cordoned.Spec.Unschedulable = true
	withControllers(t, kube.Config{NodeLifecycle: true}, func(b *fixture) {
		failures := 2
		b.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures == 0 {
				return false, nil, nil
			}
			failures--
			return true, nil, apierrors.NewTooManyRequests("later", 1)
		})
		bare := b.node("n")
		bare.Spec.Taints, bare.ResourceVersion = nil, "bare"
		if _, err := b.client.CoreV1().Nodes().Update(t.Context(), bare, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.pass(15 * time.Second)
		if got := b.taints("n"); got != "unschedulable:NoSchedule" {
			t.Errorf("taints %q", got)
		}
	}, cordoned)
}
