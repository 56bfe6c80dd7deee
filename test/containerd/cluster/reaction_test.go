package cluster_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/harness"
)

// The node of the figures, in MiB: the hog may grow for ten seconds, between two looks of the
// kubelet, without an OOM kill. evictd's threshold is above the kubelet's by more than what
// the hog uses up in its grace.
const (
	reactionMemory    = 7168
	kubeletsThreshold = 5500
	evictdsThreshold  = 6200
	hogHolds          = 5500
)

// protector is what protects the node in a series of figures.
type protector struct {
	name      string
	threshold int64    // MiB of memory.available
	flags     []string // of evictd; nil without one
}

var protectors = []protector{
	{"evictd in backstop", evictdsThreshold, []string{}},
	{"the same, `hardEvictionGracePeriod: 200ms`", evictdsThreshold, []string{sandbox.HardGrace("200ms")}},
	{"the kubelet alone", kubeletsThreshold, nil},
}

// TestCampaignReactionBesideAKubelet judges nothing: its lines that begin with | are a table
// of how soon a node is relieved of a pod that takes 400 MiB/s and ignores SIGTERM, the
// median and the maximum of EVICTD_ROUNDS rounds each.
func TestCampaignReactionBesideAKubelet(t *testing.T) {
	campaign.Only(t)
	rounds := campaign.Count(t, "EVICTD_ROUNDS", 3, 1)
	kubelet := map[string]any{
		"evictionHard":                     map[string]string{"memory.available": fmt.Sprint(kubeletsThreshold, "Mi"), "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"evictionPressureTransitionPeriod": "5s",
	}
	c := cluster.Start(t, cluster.Options{Memory: reactionMemory * node.MiB, Kubelet: kubelet})
	lines := []string{
		"| protected by | " + strings.Join(milestones, " | ") + " | MiB below the threshold | replaced on the same node |",
		"|---|" + strings.Repeat("---:|", len(milestones)+2),
	}
	for i, p := range protectors {
		var results []reaction
		for round := range rounds {
			t.Run(fmt.Sprint("reaction-", i, "-", round), func(t *testing.T) {
				r := p.measure(c.With(t))
				results = append(results, r)
				t.Logf("%s: %v, %d MiB below, on the same node: %t", p.name, r.after, r.below, r.back)
			})
		}
		lines = append(lines, p.line(results))
	}
	fmt.Println(strings.Join(lines, "\n"))
}

// milestones are what is measured of a reaction.
var milestones = []string{"first signal", "threshold kept again", "taint", "terminal phase", "replacement ready"}

// reaction is what follows the crossing of a threshold.
type reaction struct {
	after []time.Duration // from the crossing to each of milestones
	below int64           // by how much memory.available was below the threshold at the most, in MiB
	back  bool            // the replacement is on the same node
}

// line is a row of the table: the median and the maximum, in seconds.
func (p *protector) line(results []reaction) string {
	if len(results) == 0 {
		return ""
	}
	cells := []string{p.name}
	for i := range milestones {
		median, most := spread(results, func(r reaction) time.Duration { return r.after[i] })
		cells = append(cells, fmt.Sprintf("%.3f, %.3f", median.Seconds(), most.Seconds()))
	}
	median, most := spread(results, func(r reaction) int64 { return r.below })
	back := 0
	for _, r := range results {
		if r.back {
			back++
		}
	}
	cells = append(cells, fmt.Sprintf("%d, %d", median, most), fmt.Sprintf("%d of %d", back, len(results)))
	return "| " + strings.Join(cells, " | ") + " |"
}

// spread is the median and the maximum of a figure.
func spread[T cmp.Ordered](results []reaction, of func(reaction) T) (median, most T) {
	var all []T
	for _, r := range results {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)-1]
}

func (p *protector) measure(c *cluster.Cluster) reaction {
	namespace := c.Namespace(strings.ToLower(filepath.Base(c.T.Name())))
	h := c.Record(namespace)
	var e *node.Evictd
	if p.flags != nil {
		e = c.Evictd(append([]string{sandbox.EvictionHard(fmt.Sprint("memory.available<", p.threshold, "Mi")), sandbox.Housekeeping("10s"), sandbox.Transition("3s")}, p.flags...)...)
		defer e.Stop()
	}
	c.AwaitNoTaint()
	defer c.Remove(namespace)
	shared := c.T.TempDir()
	template := c.Template("on TERM /shared/term 1h")
	cluster.Share(&template, shared, "/shared")
	c.Make(cluster.Deployment, namespace, 1, template)
	first := c.Nodes[0].Name
	hog := h.Await("the hog to be ready on "+first, func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.Spec.NodeName == first })
	if e != nil {
		e.Await("evictd to measure the hog", func(s *nodestatus.Status) bool { return harness.Measured(s, memory.signal, hog.UID) })
	}
	follow := followMemory(c, (reactionMemory-p.threshold)*node.MiB)
	c.Pod(hog.Pod).Do("leak", 400*node.MiB, hogHolds*node.MiB)
	replacement := h.Await("a pod that replaces the hog to be ready", func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.UID != hog.UID })
	h.AwaitTaint(true)
	terminal := firstSight(h, func(s cluster.Sighting) bool { return s.UID == hog.UID && cluster.IsTerminal(s) })
	if terminal.IsZero() {
		c.T.Fatal("the hog has no terminal phase")
	}
	crossed, kept, most := follow()
	h.AwaitTaint(false) // an evictd that stops leaves its taint
	signalled := readTime(c, filepath.Join(shared, "term"))
	ready := firstSight(h, func(s cluster.Sighting) bool { return s.UID == replacement.UID && cluster.IsReady(s) })
	r := reaction{below: (most - (reactionMemory-p.threshold)*node.MiB) / node.MiB, back: replacement.Spec.NodeName == first}
	for _, at := range []time.Time{signalled, kept, h.Tainted(crossed), terminal, ready} {
		r.after = append(r.after, at.Sub(crossed).Round(100*time.Microsecond))
	}
	return r
}

// followMemory looks at the working set of the first node until the function that it
// returns is called. crossed is when that was above a limit first, kept since when it has not
// been any more, most the greatest.
func followMemory(c *cluster.Cluster, limit int64) (end func() (crossed, kept time.Time, most int64)) {
	c.T.Helper()
	group, err := c.Nodes[0].Cgroup()
	if err != nil {
		c.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.T.Context())
	var crossed, kept time.Time
	var most int64
	var following sync.WaitGroup
	following.Go(func() {
		defer group.Close()
		above := false
		for tick := time.Tick(time.Millisecond); ctx.Err() == nil; <-tick {
			amount, err := group.WorkingSet()
			now := time.Now()
			used, known := amount.Get()
			if err != nil || !known {
				continue
			}
			switch {
			case int64(used) > limit && crossed.IsZero():
				crossed, above = now, true
			case int64(used) > limit:
				above = true
			case above:
				kept, above = now, false
			}
			most = max(most, int64(used))
		}
	})
	return func() (time.Time, time.Time, int64) {
		c.T.Helper()
		cancel()
		following.Wait()
		if crossed.IsZero() || kept.IsZero() {
			c.T.Fatalf("the threshold was crossed at %v and kept again at %v; at most %d bytes were used", crossed, kept, most)
		}
		return crossed, kept, most
	}
}

// firstSight is when a watch showed a pod as described first.
func firstSight(h *cluster.History, holds func(cluster.Sighting) bool) time.Time {
	for _, s := range h.Sightings() {
		if holds(s) {
			return s.At
		}
	}
	return time.Time{}
}

// readTime reads a time that a workload wrote.
func readTime(c *cluster.Cluster, file string) time.Time {
	c.T.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		c.T.Fatal(err)
	}
	nanoseconds, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		c.T.Fatal(err)
	}
	return time.Unix(0, nanoseconds)
}
