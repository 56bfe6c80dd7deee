package node_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/evictd/evictd/nodestatus"
)

// campaign skips what takes long unless it was asked for.
func campaign(t *testing.T) {
	t.Helper()
	if os.Getenv("EVICTD_CAMPAIGN") != "1" {
		t.Skip("skipped: a campaign, run by make campaign")
	}
}

const (
	bombNode      = 512 * mib
	bombThreshold = 100 * mib
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
	campaign(t)
	count, err := strconv.Atoi(cmp.Or(os.Getenv("EVICTD_BOMBS"), "500"))
	if err != nil {
		t.Fatal("EVICTD_BOMBS:", err)
	}
	n := newNode(t, bombNode, nodePIDs)
	bystanders := []*pod{
		n.start("guaranteed", podSpec{request: "64Mi", limit: "64Mi"}),
		n.start("within", podSpec{request: "128Mi"}),
		n.start("best-effort", podSpec{priority: 10}),
	}
	for i, held := range []int{48, 96, 16} {
		bystanders[i].do("hold %d", held)
	}
	d := n.run("--eviction-hard=memory.available<100Mi", "--housekeeping-interval=10s")
	d.awaitPods(memorySignal, bystanders...)
	var bombs []bomb
	for i := range count {
		rate, stubborn := []int{200, 1000, 0}[i%3], i%4 == 3
		bombs = append(bombs, n.explode(d, i, rate, stubborn))
		mustLive(t, bystanders...)
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
	t.Logf("%d bombs, a node of %d MiB, threshold at %d MiB; ended by the kernel: %s\n%s", count, bombNode/mib, bombThreshold/mib, bound(byKernel, count), report(bombs))
}

// explode runs one bomb, a pod of its own, to its end.
func (n *node) explode(d *daemon, i, rate int, stubborn bool) bomb {
	n.t.Helper()
	p := n.start(fmt.Sprintf("bomb-%d", i), podSpec{})
	stamps := filepath.Join(n.dir, p.Name)
	if err := os.WriteFile(stamps, make([]byte, most/stampEvery*8), 0o644); err != nil {
		n.t.Fatal(err)
	}
	b := bomb{kind: map[int]string{0: "flat out"}[rate]}
	if rate > 0 {
		b.kind = fmt.Sprintf("%d MiB/s", rate)
	}
	if stubborn {
		b.kind += ", ignores SIGTERM"
		p.do("ignore-term")
	}
	p.do("stamps %s", stamps)
	p.do("hold 1")
	d.awaitPods(memorySignal, p)
	crossing := bombNode - bombThreshold - n.workingSet() + mib // of what it holds
	p.tell("leak %d %d", rate, most/mib)
	p.mustDie()

	touched := readStamps(n.t, stamps)
	b.overshoot = (len(touched)-1)*stampEvery - crossing
	if n.oomKills(p.group+"/c") > 0 {
		b.byKernel = true
	} else {
		e := d.awaitEviction(p, func(e nodestatus.Eviction) bool { return !e.Gone.IsZero() })
		if at := (crossing + stampEvery - 1) / stampEvery; at < len(touched) {
			b.toSignal = e.Signalled.Sub(touched[at])
		}
		b.toGone = e.Gone.Sub(e.Signalled.Time)
	}
	p.end()
	if err := os.Remove(filepath.Join(n.manifests(), p.Name+".json")); err != nil {
		n.t.Fatal(err)
	}
	if err := n.cgroups.Delete(p.group); err != nil {
		n.t.Fatal(err)
	}
	return b
}

// readStamps are the times at which the bomb held each stampEvery more.
func readStamps(t testing.TB, file string) []time.Time {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var touched []time.Time
	for ; len(text) > 0 && binary.NativeEndian.Uint64(text) > 0; text = text[8:] {
		touched = append(touched, time.Unix(0, int64(binary.NativeEndian.Uint64(text))))
	}
	return touched
}

func (n *node) workingSet() int {
	n.t.Helper()
	g, err := n.cgroups.Open(n.group)
	if err != nil {
		n.t.Fatal(err)
	}
	defer g.Close()
	used, err := g.WorkingSet()
	if err != nil {
		n.t.Fatal(err)
	}
	return int(used.Or(0))
}

func (n *node) oomKills(group string) int64 {
	n.t.Helper()
	g, err := n.cgroups.Open(group)
	if err != nil {
		n.t.Fatal(err)
	}
	defer g.Close()
	kills, err := g.OOMKills()
	if err != nil {
		n.t.Fatal(err)
	}
	return kills.Or(0)
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
		overshoot = append(overshoot, float64(b.overshoot)/mib)
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s%s%s\n", kind, len(bombs), len(toSignal), len(bombs)-len(toSignal), quantiles(toSignal), quantiles(toGone), quantiles(overshoot))
}

// bound tells a count of n with what it supports at 95 %: of none seen, the rule
// of three.
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
