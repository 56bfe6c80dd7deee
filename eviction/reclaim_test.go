package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// reclaimingNode is a node of one disk whose reclaims last over several passes, with a pod
// that writes and one that uses memory. It keeps decisions as lines.
type reclaimingNode struct {
	cfg   eviction.Config
	state eviction.State
	lines []string
}

const gibi = int64(1) << 30

func newReclaimingNode(layout eviction.Layout, thresholds ...eviction.Threshold) *reclaimingNode {
	return &reclaimingNode{cfg: eviction.New(eviction.Config{Thresholds: thresholds}, layout)}
}

func below(s eviction.Signal, required int64) eviction.Threshold {
	return eviction.Threshold{Signal: s, Value: eviction.Value{Amount: required}}
}

// signals are what is left of some; the others have plenty.
type signals map[eviction.Signal]int64

// at runs a pass; reclaims that it asks for do not end in it.
func (n *reclaimingNode) at(at time.Duration, left signals, ended ...eviction.Signal) {
	now := start.Add(at)
	in := eviction.Input{Now: now, Sampled: true}
	for s := range in.Signals {
		available, given := left[eviction.Signal(s)]
		if !given {
			available = 1000 * gibi
		}
		in.Signals[s] = eviction.Observation{Available: stats.Known(available), Capacity: stats.Known(2000 * gibi), Time: now}
	}
	for _, f := range n.state.InFlight {
		in.Outcomes = append(in.Outcomes, eviction.Outcome{UID: f.UID})
	}
	for _, name := range []string{"hog", "writer"} {
		use := stats.Pod{Memory: stats.Known(gibi), Processes: stats.Known(1), Containers: []stats.Container{{}}}
		if name == "writer" {
			use.Memory, use.Containers[0].Rootfs = stats.Known(0), stats.Known(gibi)
			use.Containers[0].RootfsInodes = stats.Known(1)
		}
		in.Candidates = append(in.Candidates, eviction.Candidate{
			Pod:   &eviction.Pod{UID: types.UID(name), Name: name, Containers: []eviction.Container{{Name: "c"}}},
			Usage: &use,
		})
	}
	for _, s := range ended {
		in.Reclaims = append(in.Reclaims, eviction.ReclaimOutcome{For: s, Ended: true})
	}
	for again := true; again; in.Pass, in.Outcomes = eviction.Continue, nil {
		var d eviction.Decision
		n.state, d = eviction.Decide(&n.cfg, n.state, in)
		d.Explain()
		in.Reclaims, again = nil, false
		if len(d.Reclaim) > 0 {
			n.write(at, "reclaim %v for %v: %d bytes, %d inodes, layers %t, logs %t", d.Reclaim, d.ReclaimFor, d.ReclaimNeed.Bytes, d.ReclaimNeed.Inodes, d.ReclaimNeed.Layers, d.ReclaimNeed.Logs)
			in.Reclaims, again = []eviction.ReclaimOutcome{{For: d.ReclaimFor}}, true
		}
		for _, e := range d.Evictions {
			_, despite, _ := strings.Cut(e.Because, "; the ")
			n.write(at, "evict %s for %v %s", e.Pod.Name, e.Signal, despite)
		}
	}
}

func (n *reclaimingNode) write(at time.Duration, format string, args ...any) {
	n.lines = append(n.lines, strings.TrimSpace(at.String()+" "+fmt.Sprintf(format, args...)))
}

func (n *reclaimingNode) wants(t *testing.T, lines ...string) {
	t.Helper()
	if !slices.Equal(n.lines, lines) {
		t.Errorf("decided:\n  %s\nwanted:\n  %s", strings.Join(n.lines, "\n  "), strings.Join(lines, "\n  "))
	}
}

// rule: M.35
// rule: M.36
func TestADiskWaitsForItsReclaim(t *testing.T) {
	const disk, memory = eviction.NodeFsAvailable, eviction.MemoryAvailable
	short := signals{disk: gibi}
	const asked = "0s reclaim [containers images] for nodefs.available: 1073741824 bytes, 0 inodes, layers true, logs true"
	for _, c := range []struct {
		name string
		run  func(*reclaimingNode)
		want []string
	}{
		{
			"and no pod goes where that suffices",
			func(n *reclaimingNode) {
				n.at(0, short)
				n.at(10*time.Second, short)
				n.at(12*time.Second, signals{disk: 2 * gibi}, disk)
			},
			[]string{asked},
		},
		{
			"and after one that sufficed the next crossing asks again at once",
			func(n *reclaimingNode) {
				n.at(0, short)
				n.at(2*time.Second, signals{disk: 2 * gibi}, disk)
				n.at(3*time.Second, short)
			},
			[]string{asked, strings.Replace(asked, "0s", "3s", 1)},
		},
		{
			"a pod goes in the pass that its end causes where it does not",
			func(n *reclaimingNode) { n.at(0, short); n.at(3*time.Second, short, disk) },
			[]string{asked, "3s evict writer for nodefs.available"},
		},
		{
			"while memory does not wait",
			func(n *reclaimingNode) { n.at(0, signals{disk: gibi, memory: 0}); n.at(time.Second, short) },
			[]string{"0s evict hog for memory.available", strings.Replace(asked, "0s", "1s", 1)},
		},
		{
			"for half a minute in which nothing is gained",
			func(n *reclaimingNode) {
				n.at(0, short)
				n.at(29*time.Second, short)
				n.at(30*time.Second, short)
				n.at(40*time.Second, short)
			},
			[]string{asked,
				"30s evict writer for nodefs.available node's own reclaim has not ended in 30s",
				"40s evict writer for nodefs.available node's own reclaim has not ended in 40s"},
		},
		{
			"for as long as it gains",
			func(n *reclaimingNode) {
				for i := range 6 {
					n.at(time.Duration(i)*20*time.Second, signals{disk: gibi + int64(i)})
				}
			},
			[]string{asked},
		},
		{
			"but not while it falls to half",
			func(n *reclaimingNode) {
				n.at(0, short)
				n.at(4*time.Second, signals{disk: gibi/2 - 1})
				n.at(5*time.Second, signals{disk: gibi / 2})
				n.at(6*time.Second, signals{disk: gibi/2 - 1})
			},
			[]string{asked, "6s evict writer for nodefs.available node's own reclaim has not ended in 6s"},
		},
		{
			"and asks again ten seconds after a reclaim that freed space",
			func(n *reclaimingNode) {
				n.at(0, short)
				n.at(2*time.Second, signals{disk: gibi + 1}, disk)
				n.at(11*time.Second, signals{disk: gibi + 1})
				n.at(12*time.Second, signals{disk: gibi + 1})
			},
			[]string{asked, "2s evict writer for nodefs.available", "11s evict writer for nodefs.available",
				"12s reclaim [containers images] for nodefs.available: 1073741823 bytes, 0 inodes, layers true, logs true"},
		},
		{
			"and a minute after one that it did not gain by",
			func(n *reclaimingNode) {
				n.at(0, short)
				n.at(2*time.Second, short, disk)
				n.at(61*time.Second, short)
				n.at(62*time.Second, short)
			},
			[]string{asked, "2s evict writer for nodefs.available", "1m1s evict writer for nodefs.available", strings.Replace(asked, "0s", "1m2s", 1)},
		},
		{
			"the end of a reclaim that was not asked for changes nothing",
			func(n *reclaimingNode) { n.at(0, signals{}, disk); n.at(time.Second, short) },
			[]string{strings.Replace(asked, "0s", "1s", 1)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newReclaimingNode(eviction.SharedFs, below(disk, 2*gibi), below(memory, gibi))
			c.run(n)
			n.wants(t, c.want...)
		})
	}
}

// rule: M.31
func TestADiskNeedsWhatResolvesAllItsThresholds(t *testing.T) {
	thresholds := []eviction.Threshold{
		{Signal: eviction.NodeFsAvailable, Value: eviction.Value{Amount: 10}, MinReclaim: eviction.Value{Amount: 5}},
		{Signal: eviction.ImageFsAvailable, Value: eviction.Value{Amount: 20}, Grace: time.Hour},
		{Signal: eviction.NodeFsInodesFree, Value: eviction.Value{Amount: 30}},
		{Signal: eviction.ImageFsInodesFree, Value: eviction.Value{Amount: 40}},
	}
	left := signals{eviction.NodeFsAvailable: 9, eviction.ImageFsAvailable: 9, eviction.NodeFsInodesFree: 29, eviction.ImageFsInodesFree: 50}
	for layout, want := range map[eviction.Layout][]string{
		eviction.SharedFs: {"0s reclaim [containers images] for nodefs.available: 11 bytes, 1 inodes, layers true, logs true"},
		eviction.SplitFs:  {"0s reclaim [containers] for nodefs.available: 6 bytes, 1 inodes, layers true, logs true"},
	} {
		n := newReclaimingNode(layout, thresholds...)
		n.at(0, left)
		n.wants(t, want...)
	}
	n := newReclaimingNode(eviction.ImageFs, below(eviction.ImageFsAvailable, 20))
	n.at(0, left)
	n.wants(t, "0s reclaim [containers images] for imagefs.available: 11 bytes, 0 inodes, layers true, logs false")
}

func TestReclaimsOfTwoDisksAreIndependent(t *testing.T) {
	const node, images = eviction.NodeFsAvailable, eviction.ImageFsAvailable
	n := newReclaimingNode(eviction.SplitFs, below(node, 2*gibi), below(images, 2*gibi))
	n.at(0, signals{node: gibi, images: gibi})
	n.at(time.Second, signals{node: gibi, images: gibi}, node)
	n.at(2*time.Second, signals{node: 3 * gibi, images: gibi}, images)
	n.wants(t,
		"0s reclaim [containers] for nodefs.available: 1073741824 bytes, 0 inodes, layers true, logs true",
		"0s reclaim [images] for imagefs.available: 1073741824 bytes, 0 inodes, layers false, logs false",
		"1s evict writer for nodefs.available")
}

func TestAPatientDiskLosesNoPodAndAsksOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 12 {
			for _, c := range n.pass(t, r, anyKind(r)) {
				for disk, before := range c.before.Reclaims {
					after := c.after.Reclaims[disk]
					went := !before.Since.IsZero() && !after.Since.IsZero()
					if went && !before.Since.Equal(after.Since) {
						t.Errorf("a reclaim was begun over another: %+v, %+v", before, after)
					}
					if !after.Since.IsZero() && !after.Rest.IsZero() {
						t.Errorf("a reclaim runs and is not due before a time: %+v", after)
					}
				}
				if d := c.out; len(d.Reclaim) > 0 && d.ReclaimNeed.Bytes <= 0 && d.ReclaimNeed.Inodes <= 0 {
					t.Errorf("a reclaim is asked for that frees nothing: %s", text(d))
				}
			}
		}
	})
}
