package node_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

const (
	ownCondition v1.NodeConditionType = "evictd.io/MemoryPressure"
	ownTaint     string               = "evictd.io/memory-pressure"
)

// pressed is a threshold that a pod of 20 MiB crosses, and that evicts none within the test.
func pressed() []string {
	return []string{sandbox.EvictionHard("memory.available<1Mi"), sandbox.EvictionSoft("memory.available<250Mi"), sandbox.SoftGrace("memory.available=24h")}
}

// TestStrangeNodeIsOpenedByAnEvictdThatWritesNothing has an evictd stop under pressure and another one start that may not
// write its names any more.
func TestStrangeNodeIsOpenedByAnEvictdThatWritesNothing(t *testing.T) {
	foreign := v1.Taint{Key: "example.com/dedicated", Value: "x", Effect: v1.TaintEffectNoSchedule}
	for _, c := range []struct {
		name, before string
		after        []string
		now          v1.NodeConditionType // by the names of the second evictd; "" for none
		nowTaint     string
	}{
		{"native, then its dry run", "native", []string{sandbox.Mode("native"), sandbox.DryRun}, "", ""},
		{"native, then observe", "native", []string{sandbox.Mode("observe")}, "", ""},
		{"native, then backstop", "native", []string{sandbox.Mode("backstop")}, ownCondition, ownTaint},
		{"backstop, then its dry run", "backstop", []string{sandbox.Mode("backstop"), sandbox.DryRun}, "", ""},
		{"backstop, then observe", "backstop", []string{sandbox.Mode("observe")}, "", ""},
		{"backstop, then native", "backstop", []string{sandbox.Mode("native")}, v1.NodeMemoryPressure, memoryTaint},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			a := kube.New(n)
			condition, taint := v1.NodeMemoryPressure, memoryTaint
			if c.before == "backstop" {
				condition, taint = ownCondition, ownTaint
				_, err := a.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Node}}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			pod := a.CreatePod(n, "pod", sandbox.Spec{Request: "8Mi"}, nil)
			pod.Do("hold 20Mi")
			d := runWith(n, a, append(pressed(), sandbox.Mode(c.before))...)
			a.AwaitCondition(t, condition, taint, true)
			other := fmt.Appendf(nil, `{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"},{"key":%q,"value":%q,"effect":%q}]}}`, taint, foreign.Key, foreign.Value, foreign.Effect)
			_, err := a.CoreV1().Nodes().Patch(t.Context(), a.Node, types.MergePatchType, other, metav1.PatchOptions{})
			require.NoError(t, err)
			d.Stop()
			runWith(n, a, append(pressed(), c.after...)...)
			a.AwaitNode(t, "nothing of the first evictd, and what others wrote", func(node *v1.Node) bool {
				return !slices.ContainsFunc(node.Status.Conditions, func(is v1.NodeCondition) bool { return is.Type == condition }) &&
					!slices.ContainsFunc(node.Spec.Taints, func(is v1.Taint) bool { return is.Key == taint }) && slices.Contains(node.Spec.Taints, foreign)
			})
			if c.now != "" {
				a.AwaitCondition(t, c.now, c.nowTaint, true)
			}
			harness.MustRun(t, pod)
		})
	}
}

// TestStrangeNodeWithAKubeletsConditionKeepsIt has a kubelet's condition and taint on a Node that evictd has not registered.
func TestStrangeNodeWithAKubeletsConditionKeepsIt(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	_, err := a.CoreV1().Nodes().Create(t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: a.Node},
		Spec: v1.NodeSpec{Taints: []v1.Taint{
			{Key: memoryTaint, Effect: v1.TaintEffectNoSchedule}, {Key: ownTaint, Effect: v1.TaintEffectNoSchedule},
		}},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady"},
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue, Reason: "KubeletHasInsufficientMemory"},
			{Type: ownCondition, Status: v1.ConditionTrue, Reason: "EvictdHasInsufficientMemory"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	runWith(n, a, sandbox.Mode("observe"))
	a.AwaitNode(t, "the kubelet's condition and taint alone", func(node *v1.Node) bool {
		return harness.Shows(node, v1.NodeMemoryPressure, memoryTaint, true) && len(node.Spec.Taints) == 1 && len(node.Status.Conditions) == 2
	})
}

// TestStrangeDryRunSaysThatItIsOne has pods that a dry run would evict.
func TestStrangeDryRunSaysThatItIsOne(t *testing.T) {
	for name, mode := range map[string][]string{
		"dry run": {sandbox.Mode("backstop"), sandbox.DryRun}, "observe": {sandbox.Mode("observe")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			leaker := n.Start("leaker", sandbox.Spec{Request: "8Mi"})
			d := n.Evictd(append(mode, sandbox.EvictionHard("memory.available<250Mi"), longTransition, sandbox.Housekeeping("100ms"), sandbox.NodeStatusFile(n.StatusFile()))...)
			leaker.Do("hold 20Mi")
			s := d.Await("the candidate", func(s *nodestatus.Status) bool { return s.WouldBe != nil && len(s.WouldBe.Evictions) > 0 })
			if !s.DryRun || len(s.Conditions)+len(s.Taints)+len(s.Evictions) > 0 {
				t.Errorf("dryRun %t, conditions %v, taints %v, evictions %v", s.DryRun, s.Conditions, s.Taints, s.Evictions)
			}
			if !slices.Contains(s.WouldBe.Taints, ownTaint+":NoSchedule") || s.WouldBe.Evictions[0].UID != leaker.UID {
				t.Errorf("would be %+v", s.WouldBe)
			}
			decided := s.WouldBe.Evictions[0].Decided.Time
			d.Await("the core to choose the candidate again", func(s *nodestatus.Status) bool { return s.Time.Sub(decided) > 12*time.Second })
			if s = d.Status(); len(s.WouldBe.Evictions) != 1 || strings.Count(d.Log(), `msg="would evict"`) != 1 {
				t.Errorf("one candidate is reported as %v, and %d times in the log", s.WouldBe.Evictions, strings.Count(d.Log(), `msg="would evict"`))
			}
			for _, line := range []string{
				fmt.Sprintf(`evictd_node_condition{condition=%q} 0`, ownCondition), `evictd_evictions_total{kind="hard",outcome="dry-run",signal="memory.available"} 1`,
			} {
				d.AwaitMetric(line)
			}
			if text := evictd(n, "status", sandbox.StatusAddress("unix:"+n.Socket())); !strings.Contains(text, "dry run: nothing is evicted") ||
				!strings.Contains(text, "would be "+string(ownCondition)+"=True") || strings.Contains(text, "\nevicted ") {
				t.Errorf("the status is\n%s", text)
			}
			if text := string(require.ReadFile(t, n.StatusFile())); strings.Contains(text, "taints") || strings.Contains(text, "conditions") {
				t.Errorf("the manifest of the node is\n%s", text)
			}
			harness.MustRun(t, leaker)
		})
	}
}

// TestStrangeVictimThatSucceedsIsTheKubelets has a victim of the kubelet exit with 0: only a condition shows the eviction.
func TestStrangeVictimThatSucceedsIsTheKubelets(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	pod := a.CreatePod(n, "polite", sandbox.Spec{Request: "8Mi"}, nil)
	d := runWith(n, a, sandbox.Mode("observe"), hardMemory)
	d.AwaitPods(memorySignal, pod)
	status := fmt.Sprintf(`{"status": {"phase": "Succeeded", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
		"message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 20Mi. ", "lastTransitionTime": %q}]}}`, time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
	_, err := a.CoreV1().Pods(a.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	harness.Await(t, "the report to have the eviction", func() bool {
		return strings.Contains(evictd(n, "report", sandbox.StateDir(n.StateDir())), "kubelet only: 1")
	})
}

// TestStrangeKubeletWithACgroupRoot has a kubelet keep its pods below a group that evictd does not know of, beside an empty group of
// the usual name or without one.
func TestStrangeKubeletWithACgroupRoot(t *testing.T) {
	for _, c := range []struct {
		name   string
		driver sandbox.Driver
		usual  bool
	}{
		{"cgroupfs", sandbox.Cgroupfs, false}, {"cgroupfs beside an empty kubepods", sandbox.Cgroupfs, true},
		{"systemd", sandbox.Systemd, false}, {"systemd beside an empty kubepods.slice", sandbox.Systemd, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			n.Clear(n.Pods().Path())
			n.Driver = c.driver
			if c.usual {
				n.Make(n.Pods().Path(), cgroup.Limits{})
			}
			m := n.Manifest("elsewhere", sandbox.Spec{Request: "8Mi"})
			n.Write(m)
			n.Make(n.Group+"/custom", cgroup.Limits{})
			pod := n.StartIn(m, strings.Replace(n.PodGroup(m), n.Group, n.Group+"/custom", 1), nil)
			d := n.Evictd(hardMemory, longTransition)
			s := d.Await("evictd to say that it protects nothing", func(s *nodestatus.Status) bool { return s.Unprotected != "" })
			if !strings.Contains(s.Unprotected, "podsCgroup") {
				t.Error(s.Unprotected)
			}
			at := sandbox.StatusAddress("unix:" + n.Socket())
			for _, args := range [][]string{{"status", at}, {"explain", at}, {"doctor", at}, {"report", at, sandbox.StateDir(n.StateDir())}} {
				stdout, stderr, _ := harness.Finish(t, exec.Command(harness.Program(t, "evictd"), args...))
				if !strings.Contains(stdout+stderr, "no pod can be measured or evicted") {
					t.Errorf("evictd %s does not say it:\n%s%s", args[0], stdout, stderr)
				}
			}
			if is := d.Answer("/readyz"); !strings.HasPrefix(is, "503") {
				t.Errorf("/readyz: %s", is)
			}
			d.AwaitMetric("evictd_pods_without_cgroup 1")
			second := n.StartIn(m, n.PodGroup(m), nil) // the kubelet's cgroupRoot is corrected
			d.AwaitPods(memorySignal, second)
			harness.Await(t, "evictd to be ready", func() bool { return d.Answer("/readyz") == "200 OK" && d.Status().Unprotected == "" })
			harness.MustRun(t, pod)
		})
	}
}
