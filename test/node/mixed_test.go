package node_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// mixture is one kind of run: who else is on the node, and what the pod does that
// the run is about.
type mixture struct {
	name       string
	args       []string
	bystanders func(*node) []*pod
	act        func(n *node, p *pod)
	// signal is what the pod is evicted for; "" where nobody is.
	signal string
}

// TestCampaignMixedRuns fails where anybody is evicted but the pod that the run is
// about, or that pod where there was no need, or where the kernel kills.
func TestCampaignMixedRuns(t *testing.T) {
	campaign(t)
	count, err := strconv.Atoi(cmp.Or(os.Getenv("EVICTD_RUNS"), "504"))
	if err != nil {
		t.Fatal("EVICTD_RUNS:", err)
	}
	kinds := mixtures(t)
	each, played := count/len(kinds), 0
	for i := range kinds {
		t.Run(kinds[i].name, func(t *testing.T) {
			played += each
			wrong := kinds[i].play(t, each)
			t.Logf("wrong or extra evictions, or kills by the kernel: %s", bound(wrong, each))
		})
	}
	if !t.Failed() {
		t.Logf("wrong or extra evictions, or kills by the kernel: %s", bound(0, played))
	}
}

// mixtures are the kinds of runs. Their nodes have 512 MiB.
func mixtures(t *testing.T) []mixture {
	memory := []string{hardMemoryBomb, "--housekeeping-interval=10s"}
	large := largeFile(t)
	grow := func(_ *node, p *pod) { p.tell("leak 400 %d", most/mib) }
	return []mixture{
		{
			name: "a file larger than the node is read twice", args: append(memory, "--config="+configFile(t, "memoryModel: reclaimAware")),
			bystanders: few,
			act: func(_ *node, p *pod) {
				uncache(t, large)
				p.do("storm %s 2", large)
			},
		},
		{
			name: "a large file is read just before the ramp", args: memory, signal: memorySignal, bystanders: few,
			act: func(n *node, p *pod) {
				uncache(t, large)
				p.do("read %s", large)
				grow(n, p)
			},
		},
		{name: "one grower among twenty", args: memory, signal: memorySignal, bystanders: twenty, act: grow},
		{
			name: "throttled pods", args: memory, signal: memorySignal,
			bystanders: func(n *node) []*pod {
				pods := few(n)
				for _, p := range pods {
					n.throttle(p)
				}
				return pods
			},
			act: func(n *node, p *pod) { n.throttle(p); grow(n, p) },
		},
		{
			name: "a victim that is slow to end", args: memory, signal: memorySignal, bystanders: few,
			act: func(n *node, p *pod) { p.do("linger 400ms"); grow(n, p) },
		},
		{
			name: "a fork bomb", args: []string{"--eviction-hard=pid.available<100", "--housekeeping-interval=10s"}, signal: pidSignal,
			bystanders: few, act: func(_ *node, p *pod) { p.tell("fork 1000") },
		},
	}
}

const (
	pidSignal = "pid.available"
	// fewTasks are more than those of the bystanders.
	fewTasks = 150
)

const hardMemoryBomb = "--eviction-hard=memory.available<100Mi"

func few(n *node) []*pod {
	pods := []*pod{
		n.start("guaranteed", podSpec{request: "64Mi", limit: "64Mi"}),
		n.start("within", podSpec{request: "128Mi"}),
		n.start("best-effort", podSpec{priority: 10}),
	}
	for i, held := range []int{48, 96, 16} {
		pods[i].do("hold %d", held)
	}
	return pods
}

func twenty(n *node) (pods []*pod) {
	for i := range 20 {
		spec := podSpec{}
		if i%2 == 0 {
			spec.request = "16Mi"
		}
		p := n.start(fmt.Sprintf("bystander-%d", i), spec)
		p.do("hold %d", 1+i%4)
		pods = append(pods, p)
	}
	return pods
}

// throttle leaves a pod's container a twentieth of a processor.
func (n *node) throttle(p *pod) {
	n.t.Helper()
	if err := n.cgroups.Create(p.group+"/c", cgroup.Limits{CPUQuota: stats.Known(5000)}); err != nil {
		n.t.Fatal(err)
	}
}

// play runs it so many times and counts those that went wrong.
func (m *mixture) play(t *testing.T, runs int) (wrong int) {
	n := newNode(t, bombNode, 700)
	bystanders := m.bystanders(n)
	d := n.run(m.args...)
	d.awaitPods(cmp.Or(m.signal, memorySignal), bystanders...)
	for i := range runs {
		p := n.start(fmt.Sprintf("run-%d", i), podSpec{})
		p.do("hold 1")
		d.awaitPods(cmp.Or(m.signal, memorySignal), p)
		s := d.await("the node to recover", func(s *nodestatus.Status) bool {
			return !slices.ContainsFunc(s.Signals, func(signal nodestatus.SignalStatus) bool {
				return slices.ContainsFunc(signal.Thresholds, func(t nodestatus.ThresholdStatus) bool { return t.Met })
			}) && (m.signal != pidSignal || n.tasks() < fewTasks) // the machine has reaped those of the run before
		})
		before := len(s.Evictions)
		m.act(n, p)
		if m.signal != "" {
			p.mustDie()
		}
		ok := n.oomKills(p.group+"/c") == 0
		if m.signal != "" && ok {
			e := d.awaitEviction(p, func(e nodestatus.Eviction) bool { return !e.Gone.IsZero() })
			ok = e.Signal == m.signal
		}
		evictions := d.status().Evictions
		for _, e := range evictions[min(before, len(evictions)):] {
			ok = ok && e.UID == p.UID
		}
		for _, b := range bystanders {
			ok = ok && b.lives()
		}
		if !ok || m.signal == "" && !p.lives() {
			wrong++
			t.Errorf("run %d: evicted %+v", i, evictions)
			mustLive(t, bystanders...)
			if len(evictions) > before {
				t.Log(n.evictd("why", "--last", "-o", "scenario", "--status-address=unix:"+n.socket()))
			}
			return wrong
		}
		n.discard(p)
	}
	return wrong
}

// tasks is how many the node has.
func (n *node) tasks() int64 {
	n.t.Helper()
	g, err := n.cgroups.Open(n.group)
	if err != nil {
		n.t.Fatal(err)
	}
	defer g.Close()
	tasks, err := g.Threads()
	if err != nil {
		n.t.Fatal(err)
	}
	return tasks.Or(0)
}

// discard takes a pod away, whether it has ended or not.
func (n *node) discard(p *pod) {
	n.t.Helper()
	p.end()
	if err := os.Remove(filepath.Join(n.manifests(), p.Name+".json")); err != nil {
		n.t.Fatal(err)
	}
	await(n.t, "the cgroup of pod "+p.Name+" to be removed", func() bool { return n.cgroups.Delete(p.group) == nil })
}

// largeFile is half as large again as the node.
func largeFile(t *testing.T) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, mib)
	for range bombNode / mib * 3 / 2 {
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// uncache drops a file from the page cache, so that the next who reads it is
// charged for it.
func uncache(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err == nil {
		err = errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func configFile(t *testing.T, fields string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "evictd.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\n"+fields+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
