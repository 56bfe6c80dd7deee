package node_test

import (
	"testing"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// TestCampaignPodWithoutAManifestYetDoesNotCostAnotherItsLife has two seconds from the
// crossing to the manifest: evictd spares pods within their request for as long.
//
// rule: M.42
func TestCampaignPodWithoutAManifestYetDoesNotCostAnotherItsLife(t *testing.T) {
	campaign.Only(t)
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	within := n.Start("within", sandbox.Spec{Request: "128Mi"})
	within.Do("hold 64Mi")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), longTransition)
	d.AwaitPods(memorySignal, within)
	m := n.Manifest("unknown", sandbox.Spec{})
	stranger := n.StartIn(m, n.PodGroup(m), nil)
	stranger.Do("hold 140Mi")
	d.Await("the threshold to be met", func(s *nodestatus.Status) bool { return s.Signals[0].Thresholds[0].Met })
	n.Write(m)
	d.AwaitGone(stranger)
	d.MustHaveEvicted(stranger)
	harness.MustRun(t, within)
}
