package node_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// TestPodsOfAMegabyteEachFillNoMemory has pods that are nearly as large as the API server
// accepts, most of it environment.
//
// rule: M.66
func TestPodsOfAMegabyteEachFillNoMemory(t *testing.T) {
	const pods, size = 64, 1_100_000
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	leaker := a.CreatePod(n, "leaker", sandbox.Spec{}, nil)
	value := strings.Repeat("x", size)
	for i := range pods {
		pod := sandbox.Spec{}.Manifest(fmt.Sprintf("huge-%d", i), "")
		pod.Namespace, pod.Spec.NodeName = a.Namespace, a.Node
		pod.Spec.Priority, pod.Spec.Containers[0].Image = nil, "none"
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "LARGE", Value: value}}
		if _, err := a.CoreV1().Pods(a.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d := runWith(n, a, sandbox.Mode("native"), hardMemory)
	d.AwaitPods(memorySignal, leaker)
	press(leaker, 32)
	awaitEvicted(a, t, d, leaker)
	d.AwaitMetric("evictd_agent_restarts_total 0")
	for program, pid := range map[string]int{"evictd": d.PID(), "the agent": d.Agent()} {
		if most := peakMemory(t, pid); most > 100*harness.MiB {
			t.Errorf("%s has had %d MiB in memory, with %d pods of %d bytes", program, most/harness.MiB, pods, size)
		} else {
			t.Logf("%s has had %d MiB in memory", program, most/harness.MiB)
		}
	}
}

// peakMemory is the most that a process has had in memory, bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(content(t, fmt.Sprintf("/proc/%d/status", pid)), "VmHWM:")
	kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	require.NoError(t, err)
	return kilobytes << 10
}
