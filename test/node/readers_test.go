package node_test

import (
	"sync"
	"testing"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// TestReadersDoNotDelayAnEviction has clients that ask without a pause while a pod crosses
// the threshold and continues to grow.
//
// rule: M.62
func TestReadersDoNotDelayAnEviction(t *testing.T) {
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	hog, bystander := n.Start("hog", sandbox.Spec{}), n.Start("bystander", sandbox.Spec{Request: "32Mi"})
	bystander.Do("hold 16Mi")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), longTransition)
	d.AwaitPods(memorySignal, hog, bystander)
	const clients = 24
	var reading, first sync.WaitGroup
	for i := range clients {
		path := []string{"/v1/explain?pod=bystander", "/v1/status", "/v1/why"}[i%3]
		first.Add(1)
		reading.Go(func() {
			asked := sync.OnceFunc(first.Done)
			for {
				select {
				case <-hog.Ended():
					asked()
					return
				default:
				}
				_, _ = d.Get(path) // it may be answered that there are too many
				asked()
			}
		})
	}
	first.Wait()
	hog.Send("hold 230Mi")
	hog.AwaitEnd()
	reading.Wait()
	d.AwaitGone(hog)
	d.MustHaveEvicted(hog)
	harness.MustRun(t, bystander)
	if kills := n.OOMKills(n.Group); kills != 0 {
		t.Errorf("the kernel has killed %d processes", kills)
	}
}
