package scheduleradapter

import (
	"context"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// owned adds a pod to node n with a controller of a kind; empty: none.
func (c *liveCluster) owned(kind, name string, change func(*v1.Pod)) {
	c.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "o", Controller: new(true)}}
	}
	if change != nil {
		change(pod)
	}
	made, err := c.CoreV1().Pods("default").Create(c.Context(), pod, metav1.CreateOptions{})
	if err == nil {
		made.Status.Phase = v1.PodRunning
		made.Status.Conditions = append(made.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
		_, err = c.CoreV1().Pods("default").UpdateStatus(c.Context(), made, metav1.UpdateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

// endPods deletes terminating pods, as the kubelet does.
func (c *liveCluster) endPods() {
	c.Helper()
	changes, err := c.CoreV1().Pods("default").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for change := range changes.ResultChan() {
			if pod, ok := change.Object.(*v1.Pod); ok && pod.DeletionTimestamp != nil {
				_ = c.CoreV1().Pods("default").Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			}
		}
	})
	c.Cleanup(func() {
		changes.Stop()
		running.Wait()
	})
}

func (c *liveCluster) names() (names []string) {
	c.Helper()
	pods, err := c.CoreV1().Pods("default").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names
}

// rule: S6.9
func TestANodeIsDrained(t *testing.T) {
	c := newLiveCluster(t)
	c.addNode("n")
	c.owned("ReplicaSet", "a", nil)
	c.owned("ReplicaSet", "b", nil)
	c.owned("DaemonSet", "daemon", nil)
	c.owned("", "static", func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} })
	c.endPods()

	code, out, errs := execute(t.Context(), "drain", "n", "--server", c.url, "--dry-run")
	const would = "pod default/daemon is not evicted: pod of a DaemonSet\npod default/static is not evicted: static pod\n" +
		"node n would be cordoned\npod default/a would be evicted\npod default/b would be evicted\n"
	if code != 0 || out != would || len(c.names()) != 4 {
		t.Fatalf("dry run: exit %d, %s%s; expected %s", code, out, errs, would)
	}

	code, out, errs = execute(t.Context(), "drain", "n", "--server", c.url)
	if code != 0 || !strings.HasSuffix(out, "node n is drained\n") || !strings.Contains(out, "[2/2] pod default/") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if left := strings.Join(c.names(), " "); left != "daemon static" {
		t.Errorf("left: %s", left)
	}
	node, err := c.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil || !node.Spec.Unschedulable {
		t.Errorf("node %+v, %v; expected it cordoned", node.Spec, err)
	}
}

// rule: S6.9
func TestADrainWaitsForABudget(t *testing.T) {
	c := newLiveCluster(t)
	c.addNode("n")
	c.owned("ReplicaSet", "a", nil)
	c.endPods()
	one := intstr.FromInt32(1)
	budget, err := c.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var out, errs wait.Log
	ctx, interrupt := context.WithCancel(t.Context())
	root := NewCommand("v1")
	root.SetOut(&out)
	root.SetErr(&errs)
	ended := make(chan int)
	go func() { ended <- Execute(ctx, root, []string{"drain", "n", "--server", c.url}) }()
	c.until("the drain waits", func() bool { return strings.Contains(out.String(), "pod default/a waits: ") })
	interrupt()
	if code := <-ended; code != 1 || !strings.Contains(errs.String(), "1 pods are left") || !strings.Contains(errs.String(), "disruption budget") {
		t.Errorf("exit %d, %s%s", code, &out, &errs)
	}
	if code, out, errs := execute(t.Context(), "drain", "n", "--server", c.url, "--timeout", "1ns"); code != 1 || !strings.Contains(errs, "not done within 1ns") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if len(c.names()) != 1 {
		t.Error("evicted although the budget forbids it")
	}
	require.NoError(t, c.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), budget.Name, metav1.DeleteOptions{}))
	if code, out, errs := execute(t.Context(), "drain", "n", "--server", c.url); code != 0 || !strings.HasPrefix(out, "node n is already cordoned\n") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
}

func TestAPodWithoutAControllerStopsADrainUnlessForced(t *testing.T) {
	c := newLiveCluster(t)
	c.addNode("n")
	c.owned("", "alone", nil)
	c.owned("ReplicaSet", "a", nil)
	c.endPods()
	code, out, errs := execute(t.Context(), "drain", "n", "--server", c.url)
	if code != 1 || !strings.Contains(errs, "default/alone: no controller recreates these pods; --force evicts them") || len(c.names()) != 2 || out != "" {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, out, errs = execute(t.Context(), "drain", "n", "--server", c.url, "--force", "--grace-period", "0"); code != 0 || len(c.names()) != 0 {
		t.Errorf("forced: exit %d, %s%s", code, out, errs)
	}
}

func TestADrainOfAnUnknownNodeIsAFault(t *testing.T) {
	c := newLiveCluster(t)
	if code, _, errs := execute(t.Context(), "drain", "n", "--server", c.url); code != 1 || !strings.Contains(errs, `"n" not found`) {
		t.Errorf("exit %d, %s", code, errs)
	}
}
