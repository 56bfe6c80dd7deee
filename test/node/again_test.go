package node_test

import (
	"testing"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// TestAPodThatHasEndedIsNotEvictedAgain leaves the cgroup of an evicted pod, whose page cache keeps the threshold
// crossed: the next victim is a pod that runs.
func TestAPodThatHasEndedIsNotEvictedAgain(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, 512*harness.MiB, nodePIDs)
	reader, next := n.Start("reader", sandbox.Spec{}), n.Start("next", sandbox.Spec{})
	next.Do("hold 8Mi")
	d := n.Evictd(sandbox.EvictionHard("memory.available<256Mi"), noTransition, sandbox.Config(configFile(t, "memoryModel: workingSet")))
	d.AwaitPods(memorySignal, reader, next)
	reader.Send("read %s 3", cached(t, 300*harness.MiB))
	d.AwaitGone(reader)
	d.AwaitGone(next)
	d.MustHaveEvicted(reader, next)
}
