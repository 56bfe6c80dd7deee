package node_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestForkBombDiesWithAllItsChildrenAndAPodWithMoreMemoryLives(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	bomb := n.start("bomb", podSpec{request: "64Mi"})
	big := n.start("big", podSpec{})
	big.do("hold 100")
	big.do("fork 5")
	d := n.run("--eviction-hard=pid.available<60", longTransition)
	d.awaitPods("pid.available", bomb, big)
	d.awaitCondition(v1.NodePIDPressure, v1.TaintNodePIDPressure, false)
	bomb.tell("fork 1000") // the node ends it at 200
	d.awaitCondition(v1.NodePIDPressure, v1.TaintNodePIDPressure, true)
	n.awaitNodeFile(v1.NodePIDPressure, v1.TaintNodePIDPressure, true)
	e := d.awaitEnd(bomb)
	if e.Signal != "pid.available" || !strings.HasPrefix(e.Message, "The node was low on resource: pids. Threshold quantity: 60, available: ") {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.awaitCondition(v1.NodePIDPressure, v1.TaintNodePIDPressure, false)
	d.mustCount(`kubelet_evictions{eviction_signal="pid.available"} 1`)
	d.mustHaveEvicted(bomb)
	mustLive(t, big)
	if children := len(n.processes(big.group)) - 1; children != 5 {
		t.Errorf("pod big has %d children left of 5", children)
	}
}
