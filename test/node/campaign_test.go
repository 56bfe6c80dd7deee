package node_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/workload"
	"github.com/evictd/evictd/test/harness"
)

const (
	bombNode      = 512 * harness.MiB
	bombThreshold = 100 * harness.MiB
)

// bomb is one memory bomb and what became of it.
type bomb struct {
	kind      string
	byKernel  bool
	toSignal  time.Duration // from its crossing of the threshold, by its own stamps
	toGone    time.Duration // from the signal
	overshoot int           // bytes it took beyond the threshold
}

// TestCampaignMemoryBombs fails where a bystander dies, and where the kernel has to
// end a bomb. How fast evictd does, it reports.
func TestCampaignMemoryBombs(t *testing.T) {
	campaign.Only(t)
	count := campaign.Count(t, "EVICTD_BOMBS", 500, 4)
	n := harness.NewNode(t, bombNode, nodePIDs)
	checkReplay(n)
	bystanders := []*harness.Pod{
		n.Start("guaranteed", sandbox.Spec{Request: "64Mi", Limit: "64Mi"}),
		n.Start("within", sandbox.Spec{Request: "128Mi"}),
		n.Start("best-effort", sandbox.Spec{Priority: 10}),
	}
	for i, held := range []int{48, 96, 16} {
		bystanders[i].Do("hold %dMi", held)
	}
	d := n.Evictd(sandbox.EvictionHard("memory.available<100Mi"), sandbox.Housekeeping("10s"))
	d.AwaitPods(memorySignal, bystanders...)
	var bombs []bomb
	for i := range count {
		rate, stubborn := []int{200, 1000, 0}[i%3], i%4 == 3
		bombs = append(bombs, explode(n, d, i, rate, stubborn))
		harness.MustRun(t, bystanders...)
		if t.Failed() {
			t.Fatalf("after bomb %d", i)
		}
	}
	byKernel := 0
	for _, b := range bombs {
		if b.byKernel {
			byKernel++
		}
	}
	if byKernel > 0 {
		t.Errorf("the kernel ended %d of %d bombs", byKernel, count)
	}
	t.Logf("%d bombs, a node of %d MiB, threshold at %d MiB; ended by the kernel: %s\n%s", count, bombNode/harness.MiB, bombThreshold/harness.MiB, bound(byKernel, count), report(bombs))
}

// explode runs one bomb, a pod of its own, to its end.
func explode(n *harness.Node, d *harness.Evictd, i, rate int, stubborn bool) bomb {
	n.T.Helper()
	p := n.Start(fmt.Sprintf("bomb-%d", i), sandbox.Spec{Request: "1Mi"}) // a BestEffort pod is not admitted under pressure
	stamps := filepath.Join(n.Dir, p.Name)
	b := bomb{kind: map[int]string{0: "flat out"}[rate]}
	if rate > 0 {
		b.kind = fmt.Sprintf("%d MiB/s", rate)
	}
	if stubborn {
		b.kind += ", ignores SIGTERM"
		p.Do("ignore-term")
	}
	p.Do("stamps %s", stamps)
	p.Do("hold 1Mi")
	d.AwaitPods(memorySignal, p)
	// The totals of cgroup v1 are up to two seconds old.
	harness.Await(n.T, "the memory of the bomb before to be free", func() bool { return workingSet(n) < bombNode-2*bombThreshold })
	crossing := bombNode - bombThreshold - workingSet(n) + harness.MiB // of what it holds
	p.Send("leak %dMi 768Mi", rate)
	p.AwaitEnd()

	touched, err := workload.ReadStamps(stamps)
	require.NoError(n.T, err)
	b.overshoot = (len(touched)-1)*workload.StampEvery - crossing
	if n.OOMKills(p.Container()) > 0 {
		b.byKernel = true
	} else {
		e := d.AwaitEviction(p, harness.Gone)
		if at := (crossing + workload.StampEvery - 1) / workload.StampEvery; at < len(touched) {
			b.toSignal = e.Signalled.Sub(touched[at])
		}
		b.toGone = e.Gone.Sub(e.Signalled.Time)
	}
	p.End()
	require.NoError(n.T, os.Remove(filepath.Join(n.Manifests(), p.Name+".json")))
	n.Delete(p.Group)
	return b
}

func workingSet(n *harness.Node) int {
	n.T.Helper()
	group := n.Open(n.Group)
	defer group.Close()
	used, err := group.WorkingSet()
	require.NoError(n.T, err)
	return int(used.Or(0))
}

// report is a table of the bombs by kind, and of all of them.
func report(bombs []bomb) string {
	kinds := map[string][]bomb{}
	for _, b := range bombs {
		kinds[b.kind] = append(kinds[b.kind], b)
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "bombs\tn\tevicted\tby kernel\tcrossing to signal, ms: p50\tp90\tp99\tmax\tsignal to gone, ms: p50\tp90\tp99\tmax\tovershoot, MiB: p50\tp90\tp99\tmax\t")
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		row(w, kind, kinds[kind])
	}
	row(w, "all", bombs)
	w.Flush()
	return text.String()
}

func row(w *tabwriter.Writer, kind string, bombs []bomb) {
	var toSignal, toGone, overshoot []float64
	for _, b := range bombs {
		if !b.byKernel {
			toSignal = append(toSignal, b.toSignal.Seconds()*1000)
			toGone = append(toGone, b.toGone.Seconds()*1000)
		}
		overshoot = append(overshoot, float64(b.overshoot)/harness.MiB)
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s%s%s\n", kind, len(bombs), len(toSignal), len(bombs)-len(toSignal), quantiles(toSignal), quantiles(toGone), quantiles(overshoot))
}

// bound writes a count of n with its bound at 95 %: of none seen, by the rule of
// three.
func bound(seen, n int) string {
	if seen > 0 {
		return fmt.Sprintf("%d of %d", seen, n)
	}
	return fmt.Sprintf("none of %d, so below %.2g %% at 95 %%", n, 100*(1-math.Pow(0.05, 1/float64(n))))
}

// quantiles are the cells p50, p90, p99 and max.
func quantiles(values []float64) string {
	slices.Sort(values)
	var cells strings.Builder
	for _, q := range []float64{0.5, 0.9, 0.99, 1} {
		cell := "-"
		if len(values) > 0 {
			cell = fmt.Sprintf("%.1f", values[int(q*float64(len(values)-1))])
		}
		cells.WriteString(cell + "\t")
	}
	return cells.String()
}
