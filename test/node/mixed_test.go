package node_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// mixture is one kind of run: the other pods of the node, and the actions of the pod
// that the run is about.
type mixture struct {
	name       string
	args       []string
	bystanders func(*harness.Node) []*harness.Pod
	act        func(n *harness.Node, p *harness.Pod)
	// signal is what the pod is evicted for; "" where none is.
	signal string
}

// TestCampaignMixedRuns fails where any pod is evicted but the pod that the run is
// about, or that pod where there was no need, or where the kernel kills.
func TestCampaignMixedRuns(t *testing.T) {
	campaign.Only(t)
	count := campaign.Count(t, "EVICTD_RUNS", 504, 1)
	kinds := mixtures(t)
	each, runs := max(1, count/len(kinds)), 0
	for i := range kinds {
		t.Run(kinds[i].name, func(t *testing.T) {
			runs += each
			wrong := kinds[i].run(t, each)
			t.Logf("wrong or extra evictions, or kills by the kernel: %s", bound(wrong, each))
		})
	}
	if !t.Failed() {
		t.Logf("wrong or extra evictions, or kills by the kernel: %s", bound(0, runs))
	}
}

// mixtures are the kinds of runs. Their nodes have 512 MiB.
func mixtures(t *testing.T) []mixture {
	memory := []string{hardMemoryBomb, sandbox.Housekeeping("10s")}
	large := sync.OnceValue(func() string { return largeFile(t) })
	grow := func(_ *harness.Node, p *harness.Pod) { p.Send("leak 400Mi 768Mi") }
	return []mixture{
		{
			name: "a file larger than the node is read twice", args: append(memory, sandbox.Config(configFile(t, "memoryModel: reclaimAware"))),
			bystanders: few,
			act: func(_ *harness.Node, p *harness.Pod) {
				uncache(t, large())
				p.Do("read %s 2", large())
			},
		},
		{
			name: "a large file is read just before the ramp", args: memory, signal: memorySignal, bystanders: few,
			act: func(n *harness.Node, p *harness.Pod) {
				uncache(t, large())
				p.Do("read %s", large())
				grow(n, p)
			},
		},
		{name: "one grower among twenty", args: memory, signal: memorySignal, bystanders: twenty, act: grow},
		{
			name: "throttled pods", args: memory, signal: memorySignal,
			bystanders: func(n *harness.Node) []*harness.Pod {
				pods := few(n)
				for _, p := range pods {
					throttle(n, p)
				}
				return pods
			},
			act: func(n *harness.Node, p *harness.Pod) { throttle(n, p); grow(n, p) },
		},
		{
			name: "a victim that is slow to end", args: memory, signal: memorySignal, bystanders: few,
			act: func(n *harness.Node, p *harness.Pod) { p.Do("on TERM exit 0 400ms"); grow(n, p) },
		},
		{
			name: "a fork bomb", args: []string{sandbox.EvictionHard("pid.available<100"), sandbox.Housekeeping("10s")}, signal: pidSignal,
			bystanders: few, act: func(_ *harness.Node, p *harness.Pod) { p.Send("fork 1000") },
		},
	}
}

const (
	pidSignal = "pid.available"
	// fewTasks are more than those of the bystanders.
	fewTasks = 150
)

var hardMemoryBomb = sandbox.EvictionHard("memory.available<100Mi")

func few(n *harness.Node) []*harness.Pod {
	pods := []*harness.Pod{
		n.Start("guaranteed", sandbox.Spec{Request: "64Mi", Limit: "64Mi"}),
		n.Start("within", sandbox.Spec{Request: "128Mi"}),
		n.Start("best-effort", sandbox.Spec{Priority: 10}),
	}
	for i, held := range []int{48, 96, 16} {
		pods[i].Do("hold %dMi", held)
	}
	return pods
}

func twenty(n *harness.Node) (pods []*harness.Pod) {
	for i := range 20 {
		spec := sandbox.Spec{}
		if i%2 == 0 {
			spec.Request = "16Mi"
		}
		p := n.Start(fmt.Sprintf("bystander-%d", i), spec)
		p.Do("hold %dMi", 1+i%4)
		pods = append(pods, p)
	}
	return pods
}

// throttle leaves a pod's container a twentieth of a processor.
func throttle(n *harness.Node, p *harness.Pod) {
	n.T.Helper()
	n.Make(p.Container(), cgroup.Limits{CPUQuota: stats.Known(5000)})
}

// run runs it so many times and counts those that went wrong.
func (m *mixture) run(t *testing.T, count int) (wrong int) {
	n := harness.NewNode(t, bombNode, 700)
	checkReplay(n)
	bystanders := m.bystanders(n)
	d := n.Evictd(m.args...)
	d.AwaitPods(cmp.Or(m.signal, memorySignal), bystanders...)
	for i := range count {
		p := n.Start(fmt.Sprintf("run-%d", i), sandbox.Spec{})
		p.Do("hold 1Mi")
		d.AwaitPods(cmp.Or(m.signal, memorySignal), p)
		s := d.Await("the node to recover", func(s *nodestatus.Status) bool {
			return !slices.ContainsFunc(s.Signals, func(signal nodestatus.SignalStatus) bool {
				return slices.ContainsFunc(signal.Thresholds, func(t nodestatus.ThresholdStatus) bool { return t.Met })
			}) && (m.signal != pidSignal || tasks(n) < fewTasks) // the machine has reaped those of the run before
		})
		before := len(s.Evictions)
		m.act(n, p)
		if m.signal != "" {
			p.AwaitEnd()
		}
		ok := n.OOMKills(p.Container()) == 0
		if m.signal != "" && ok {
			e := d.AwaitEviction(p, harness.Gone)
			ok = e.Signal == m.signal
		}
		evictions := d.Status().Evictions
		for _, e := range evictions[min(before, len(evictions)):] {
			ok = ok && e.UID == p.UID
		}
		for _, b := range bystanders {
			ok = ok && b.Runs()
		}
		if !ok || m.signal == "" && !p.Runs() {
			wrong++
			t.Errorf("run %d: evicted %+v", i, evictions)
			harness.MustRun(t, bystanders...)
			if len(evictions) > before {
				t.Log(evictd(n, "why", "--last", "-o", "scenario", "--status-address=unix:"+n.Socket()))
			}
			return wrong
		}
		discard(n, p)
	}
	return wrong
}

// tasks is how many the node has.
func tasks(n *harness.Node) int64 {
	n.T.Helper()
	g, err := n.Cgroups.Open(n.Group)
	require.NoError(n.T, err)
	defer g.Close()
	tasks, err := g.Threads()
	require.NoError(n.T, err)
	return tasks.Or(0)
}

// discard takes a pod away, whether it has ended or not.
func discard(n *harness.Node, p *harness.Pod) {
	n.T.Helper()
	p.End()
	require.NoError(n.T, os.Remove(filepath.Join(n.Manifests(), p.Name+".json")))
	n.Delete(p.Group)
}

// largeFile is half as large again as the node.
func largeFile(t *testing.T) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "large"))
	require.NoError(t, err)
	defer f.Close()
	block := make([]byte, harness.MiB)
	for range bombNode / harness.MiB * 3 / 2 {
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	require.NoError(t, f.Sync())
	return f.Name()
}

// uncache drops a file from the page cache, so that its next reader is charged
// for it.
func uncache(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err == nil {
		err = errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	}
	require.NoError(t, err)
}

func configFile(t testing.TB, fields string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "evictd.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\n"+fields+"\n"), 0o644))
	return file
}
