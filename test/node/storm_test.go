package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// stormResult is the outcome of a storm.
type stormResult struct {
	read    int64 // bytes
	lowest  int64 // of memory.available, bytes
	evicted []string
}

// TestCampaignPageCacheStorm reads eight times the memory of the node: a file that fits
// beside its pods, again and again, and then one that is larger than the node. In
// workingSet the first counts as used, as in the kubelet. Whether reclaimAware counts it
// depends on how soon pages that were reclaimed are read again, and so on the speed of
// this host.
func TestCampaignPageCacheStorm(t *testing.T) {
	campaign.Only(t)
	const fits, larger = 280 * harness.MiB, 768 * harness.MiB
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "memoryModel\tread, MiB\tlowest memory.available, MiB\tevicted")
	for _, model := range []stats.MemoryModel{stats.WorkingSetModel, stats.ReclaimAwareModel} {
		n := harness.NewNode(t, bombNode, nodePIDs)
		bystanders := few(n)
		reader := n.Start("reader", sandbox.Spec{Request: "400Mi"})
		d := n.Evictd(hardMemoryBomb, sandbox.Config(configFile(t, "memoryModel: "+model.String())))
		d.AwaitPods(memorySignal, append(bystanders, reader)...)
		s := storm(d, reader, fits, 7)
		if model == stats.ReclaimAwareModel {
			over := storm(d, reader, larger, 2)
			s = stormResult{s.read + over.read, min(s.lowest, over.lowest), over.evicted}
			if harness.MustRun(t, append(bystanders, reader)...); len(s.evicted) > 0 {
				t.Errorf("evicted %v", s.evicted)
			}
		}
		fmt.Fprintf(table, "%v\t%d\t%d\t%s\n", model, s.read/harness.MiB, s.lowest/harness.MiB, strings.Join(s.evicted, ", "))
		d.Stop()
	}
	table.Flush()
	t.Logf("a node of %d MiB, its threshold at %d MiB, pods of 160 MiB:\n%s", bombNode/harness.MiB, bombThreshold/harness.MiB, &out)
}

// storm has a pod read a file so many times, until a pod is evicted.
func storm(d *harness.Evictd, reader *harness.Pod, size int64, times int) stormResult {
	d.T.Helper()
	file := filepath.Join(d.T.TempDir(), "file")
	require.NoError(d.T, os.WriteFile(file, nil, 0o644))
	if err := os.Truncate(file, size); err != nil { // holes are cached like data
		d.T.Fatal(err)
	}
	storm := stormResult{lowest: bombNode}
	for range times {
		reader.Do("read %s", file)
		storm.read += size
		status := d.Status()
		storm.lowest = min(storm.lowest, availableIn(d.T, status))
		for _, e := range status.Evictions {
			storm.evicted = append(storm.evicted, e.Pod)
		}
		if len(storm.evicted) > 0 {
			break
		}
	}
	return storm
}

// availableIn is memory.available, bytes.
func availableIn(t testing.TB, s *nodestatus.Status) int64 {
	t.Helper()
	for _, signal := range s.Signals {
		if signal.Name == memorySignal {
			available, err := resource.ParseQuantity(signal.Available)
			require.NoError(t, err)
			return available.Value()
		}
	}
	return 0
}
