package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// TestCampaignFromCrossingToTheCluster reports how long it takes from the
// crossing of a threshold, as evictd first saw it, until a watch shows the
// condition, the taint, and the evicted pod.
func TestCampaignFromCrossingToTheCluster(t *testing.T) {
	campaign.Only(t)
	rounds := campaign.Count(t, "EVICTD_ROUNDS", 50, 2)
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	d := runWith(n, a, sandbox.Mode("native"), hardMemory, sandbox.Transition("2s"))
	a.AwaitCondition(t, v1.NodeMemoryPressure, memoryTaint, false)
	taken := map[string][]time.Duration{}
	for round := range rounds {
		nodes, pods := watchNodeAndPods(a, t)
		leaker := a.CreatePod(n, fmt.Sprintf("leaker-%d", round), sandbox.Spec{Request: "8Mi"}, nil)
		d.AwaitPods(memorySignal, leaker)
		leaker.Send("leak 200Mi 400Mi")
		seen := watchRound(t, nodes, pods, leaker.Name)
		e := d.AwaitEviction(leaker, harness.Gone)
		nodes.Stop()
		pods.Stop()
		for what, at := range seen {
			taken[what] = append(taken[what], at.Sub(e.Crossed.Time))
		}
		leaker.AwaitEnd()
		a.AwaitCondition(t, v1.NodeMemoryPressure, memoryTaint, false)
	}
	for _, what := range []string{"condition", "taint", "pod Failed"} {
		slices.Sort(taken[what])
		at := func(share float64) time.Duration {
			return taken[what][int(share*float64(len(taken[what])-1))].Round(100 * time.Microsecond)
		}
		t.Logf("%-10s p50 %v, p99 %v, max %v over %d rounds", what, at(0.5), at(0.99), at(1), rounds)
	}
}

func watchNodeAndPods(a *kube.API, t *testing.T) (nodes, pods watch.Interface) {
	t.Helper()
	nodes, err := a.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + a.Node})
	require.NoError(t, err)
	if pods, err = a.CoreV1().Pods(a.Namespace).Watch(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	return nodes, pods
}

// watchRound says when each thing was first seen.
func watchRound(t *testing.T, nodes, pods watch.Interface, pod string) map[string]time.Time {
	t.Helper()
	seen := map[string]time.Time{}
	note := func(what string, holds bool) {
		if _, before := seen[what]; holds && !before {
			seen[what] = time.Now()
		}
	}
	timeout := time.After(wait.Limit)
	for len(seen) < 3 {
		select {
		case event := <-nodes.ResultChan():
			node, ok := event.Object.(*v1.Node)
			if !ok {
				t.Fatal("the watch of the node has ended")
			}
			note("condition", slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
				return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
			}))
			note("taint", slices.ContainsFunc(node.Spec.Taints, func(taint v1.Taint) bool { return taint.Key == memoryTaint }))
		case event := <-pods.ResultChan():
			p, ok := event.Object.(*v1.Pod)
			if !ok {
				t.Fatal("the watch of the pods has ended")
			}
			note("pod Failed", p.Name == pod && p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted")
		case <-timeout:
			t.Fatalf("waited %v without effect, seen %v", wait.Limit, seen)
		}
	}
	return seen
}
