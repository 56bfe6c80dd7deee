package node_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

func TestForkBombDiesWithAllItsChildrenAndAPodWithMoreMemoryLives(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	bomb := n.Start("bomb", sandbox.Spec{Request: "64Mi"})
	big := n.Start("big", sandbox.Spec{})
	big.Do("hold 100Mi")
	big.Do("fork 5")
	d := n.Evictd(sandbox.EvictionHard("pid.available<60"), longTransition)
	d.AwaitPods("pid.available", bomb, big)
	d.AwaitCondition(v1.NodePIDPressure, v1.TaintNodePIDPressure, false)
	bomb.Send("fork 1000") // the node ends it at 200
	d.AwaitCondition(v1.NodePIDPressure, v1.TaintNodePIDPressure, true)
	awaitNodeFile(n, v1.NodePIDPressure, v1.TaintNodePIDPressure, true)
	e := d.AwaitGone(bomb)
	if e.Signal != "pid.available" || !strings.HasPrefix(e.Message, "The node was low on resource: pids. Threshold quantity: 60, available: ") {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.AwaitMetric(`kubelet_evictions{eviction_signal="pid.available"} 1`)
	d.MustHaveEvicted(bomb)
	d.Stop()
	n.Evictd(sandbox.EvictionHard("pid.available<60"), noTransition).AwaitCondition(v1.NodePIDPressure, v1.TaintNodePIDPressure, false)
	harness.MustRun(t, big)
	if children := len(n.Processes(big.Group)) - 1; children != 5 {
		t.Errorf("pod big has %d children left of 5", children)
	}
}
