package node_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// TestAReportComparesADryRunWithTheKubelet has a pod that a dry run would evict, the same pod and
// another one evicted by their status as a kubelet leaves it, and a pod that it has not admitted.
// rule: S9.19
func TestAReportComparesADryRunWithTheKubelet(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	leaker := a.CreatePod(n, "leaker", sandbox.Spec{Request: "8Mi"}, nil)
	forks := a.Create(n, "forks", sandbox.Spec{}, nil)
	rejected := a.Create(n, "rejected", sandbox.Spec{}, nil)
	start := func() *harness.Evictd { return runWith(n, a, hardMemory, sandbox.DryRun) }
	d := start()
	d.AwaitPods(memorySignal, leaker)
	press(leaker, 32)
	d.AwaitLog("would evict")
	leave := func(pod, message string, at time.Time) {
		t.Helper()
		status := fmt.Sprintf(`{"status": {"phase": "Failed", "reason": "Evicted", "message": %q, "conditions": [{"type": "DisruptionTarget", "status": "True",
			"reason": "TerminationByKubelet", "lastTransitionTime": %q}]}}`, message, at.UTC().Format(time.RFC3339))
		_, err := a.CoreV1().Pods(a.Namespace).Patch(t.Context(), pod, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	later := time.Now().Add(time.Minute)
	leave(leaker.Name, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 20Mi. ", later)
	leave(forks.Name, "The node was low on resource: pids. Threshold quantity: 100, available: 20. ", later)
	leave(rejected.Name, "Pod was rejected: The node had condition: [MemoryPressure]. ", later)

	report := func(args ...string) string {
		t.Helper()
		return evictd(n, append([]string{"report", sandbox.StateDir(filepath.Join(n.Dir, "state"))}, args...)...)
	}
	var compared struct{ Evictions []recorder.Comparison }
	await := func() {
		t.Helper()
		harness.Await(t, "both evictions of the kubelet to be recorded", func() bool {
			compared.Evictions = nil
			require.NoError(t, json.Unmarshal([]byte(report("-o", "json")), &compared))
			return len(compared.Evictions) == 2 && compared.Evictions[0].Kubelet != nil && compared.Evictions[1].Kubelet != nil
		})
	}
	await()
	same, only := &compared.Evictions[0], &compared.Evictions[1]
	if same.Evictd == nil || !same.Evictd.DryRun || same.Evictd.UID != leaker.UID || same.Kubelet.UID != leaker.UID || same.Evictd.Signal != memorySignal ||
		same.Earlier() <= 0 || only.Evictd != nil || only.Kubelet.UID != forks.UID || only.Kubelet.Resource != "pids" {
		t.Errorf("compared %s", report("-o", "json"))
	}
	text := report()
	for _, want := range []string{"/leaker (dry run)", " earlier\n", "kubelet only\n", "both: 1, of which the same pod: 1; evictd only: 0; kubelet only: 1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
	// Each start of evictd is shown all pods again.
	d.Stop()
	d = start()
	d.AwaitMetric("evictd_api_connected 1")
	await()
	harness.MustRun(t, leaker)
}
