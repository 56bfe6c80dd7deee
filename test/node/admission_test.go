package node_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// rule: 6.6
// rule: M.114
// rule: M.115
func TestAPodThatAKubeletWouldNotAdmitIsEvictedWhereNoKubeletRuns(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	a := kube.New(n)
	first := a.CreatePod(n, "first", sandbox.Spec{}, nil)
	first.Do("hold 20Mi")
	d := runWith(n, a, sandbox.Mode("native"), sandbox.EvictionHard("memory.available<1Mi"), sandbox.EvictionSoft("memory.available<250Mi"),
		sandbox.SoftGrace("memory.available=1h"))
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, true)
	d.AwaitPods("memory.available", first) // those that are bound from here on arrive
	burstable := a.CreatePod(n, "burstable", sandbox.Spec{Request: "8Mi"}, nil)
	refused := a.CreatePod(n, "refused", sandbox.Spec{}, nil)
	if e := d.AwaitGone(refused); e.Signal != "admission" {
		t.Errorf("evicted for %s", e.Signal)
	}
	const condition = "The node had condition: [MemoryPressure]. "
	var status v1.PodStatus
	harness.Await(t, "the API server to show that it is rejected", func() bool {
		status = a.Pod(t, refused.Name).Status
		return status.Phase == v1.PodFailed
	})
	if status.Reason != "Evicted" || status.Message != "Pod was rejected: "+condition || len(status.Conditions) > 0 {
		t.Errorf("status %+v", status)
	}
	d.MustHaveEvicted(refused)
	harness.MustRun(t, first, burstable)
}
