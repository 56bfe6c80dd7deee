package node_test

import (
	"testing"

	"github.com/evictd/evictd/nodestatus"
)

// rule: M.42
func TestAPodThatNobodyHasToldOfDoesNotCostAnotherItsLife(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	within := n.start("within", podSpec{request: "128Mi"})
	within.do("hold 64")
	d := n.run("--eviction-hard=memory.available<64Mi", longTransition)
	d.awaitPods(memorySignal, within)
	m := n.manifest("stranger", podSpec{})
	stranger := n.startIn(m, n.groupOf(m), nil)
	stranger.do("hold 140")
	d.await("the threshold to be met", func(s *nodestatus.Status) bool { return s.Signals[0].Thresholds[0].Met })
	n.write(m)
	d.awaitEnd(stranger)
	d.mustHaveEvicted(stranger)
	mustLive(t, within)
}
