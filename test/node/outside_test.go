package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// TestANodeIsNotEmptiedForUsageThatIsNotItsPods has small pods on a node whose memory is used
// by a service of the host, by a pod that may not be evicted, and neither uses more and more.
//
// rule: M.63
func TestANodeIsNotEmptiedForUsageThatIsNotItsPods(t *testing.T) {
	const service = "system.slice/database.service"
	for _, c := range []struct {
		name, user string
		culprit    func(*harness.Node) *harness.Pod
		request    string
	}{
		{"a service of the host", service, func(n *harness.Node) *harness.Pod {
			return n.StartIn(n.Manifest("database", sandbox.Spec{}), filepath.Join(n.Group, service), nil)
		}, ""},
		{"a critical pod", "pod default/critical (system-critical priority)", func(n *harness.Node) *harness.Pod {
			return n.Start("critical", sandbox.Spec{Priority: podspec.SystemCriticalPriority})
		}, ""},
		{"pods within their requests", service, func(n *harness.Node) *harness.Pod {
			return n.StartIn(n.Manifest("database", sandbox.Spec{}), filepath.Join(n.Group, service), nil)
		}, "60Mi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			var pods []*harness.Pod
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				pods = append(pods, n.Start(name, sandbox.Spec{Request: c.request}))
				pods[len(pods)-1].Do("hold 2Mi")
			}
			culprit := c.culprit(n)
			within := c.request != ""
			if within { // before evictd sees it: what would use up the memory in less than ten seconds does not wait for them
				press(culprit, 30)
				harness.Await(t, "the memory to be held", func() bool {
					node := n.Memory(n.Group)
					available, known := node.Available(stats.WorkingSetModel, false).Get()
					return known && available < 36*harness.MiB
				})
			}
			d := n.Evictd(sandbox.EvictionHard("memory.available<80Mi"), longTransition)
			if !within {
				d.AwaitPods(memorySignal, pods...)
				press(culprit, 30)
			}
			d.AwaitMetric(`evictd_usage_outside_pods{condition="MemoryPressure"} 1`)
			d.AwaitLog("pods are evicted ten seconds apart")
			s := d.Await("two evictions", func(s *nodestatus.Status) bool { return len(s.Evictions) >= 2 })
			if apart := s.Evictions[1].Decided.Sub(s.Evictions[0].Decided.Time); apart < 10*time.Second {
				t.Errorf("the second pod was evicted %v after the first", apart)
			}
			if len(s.Outside) != 1 || len(s.Outside[0].Users) == 0 || s.Outside[0].Users[0].Name != c.user {
				t.Errorf("the status names %+v, want %s first", s.Outside, c.user)
			}
			harness.Await(t, "the condition to name "+c.user, func() bool { return strings.Contains(content(t, n.StatusFile()), c.user) })
			harness.MustRun(t, culprit)
		})
	}
}

// TestACgroupOutsideOfThePodsIsEvictedInstead has a service leak that the configuration lists: all of it is killed, and
// no pod. What systemd starts in its place is another cgroup.
//
// rule: M.128
// rule: M.131
func TestACgroupOutsideOfThePodsIsEvictedInstead(t *testing.T) {
	t.Parallel()
	const service = "system.slice/database.service"
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	var pods []*harness.Pod
	for _, name := range []string{"a", "b"} {
		pods = append(pods, n.Start(name, sandbox.Spec{Request: "60Mi"}))
		pods[len(pods)-1].Do("hold 2Mi")
	}
	group := filepath.Join(n.Group, service)
	start := func(name, child string) *harness.Pod {
		return n.StartIn(n.Manifest(name, sandbox.Spec{}), filepath.Join(group, child), nil)
	}
	culprit, worker := start("database", ""), start("worker", "workers")
	state := t.TempDir()
	d := n.Evictd(sandbox.Config(configFile(t, "evictionHard: {memory.available: 80Mi}\noutside: ["+service+"]")), longTransition, sandbox.StateDir(state))
	d.AwaitPods(memorySignal, pods...)
	evicted := func(n int) *nodestatus.Status {
		return d.Await("the end of the service", func(s *nodestatus.Status) bool { return len(s.Evictions) == n && !s.Evictions[n-1].Gone.IsZero() })
	}
	d.Await("the service in the ranking", func(s *nodestatus.Status) bool {
		return slices.ContainsFunc(s.Ranking[memorySignal], func(r nodestatus.Ranked) bool {
			return r.Pod == "/"+service && strings.HasPrefix(r.Protected, "no pod")
		})
	})
	press(culprit, 30)
	if e := evicted(1).Evictions[0]; e.Pod != "/"+service || e.Signal != memorySignal {
		t.Errorf("evicted %+v", e)
	}
	for _, ended := range []*harness.Pod{culprit, worker} {
		harness.Await(t, "all processes of the service to end", func() bool { return !ended.Runs() })
	}
	harness.MustRun(t, pods...)
	d.Stop()
	if text := evictd(n, "why", service, sandbox.StateDir(state)); !strings.Contains(text, "/"+service+" was evicted") {
		t.Errorf("evictd why:\n%s", text)
	}
	scenario := filepath.Join(t.TempDir(), "outside.yaml")
	require.NoError(t, os.WriteFile(scenario, []byte(evictd(n, "why", service, "-o", "scenario", sandbox.StateDir(state))), 0o644))
	if got := replayed(n, scenario); !slices.Equal(got, []string{"/" + service}) {
		t.Errorf("the replay evicts %v", got)
	}
}

// TestAReloadChangesTheCgroupsOutsideOfThePods lists one service of two, then the other: the second is evicted, and the
// first, which uses as much, is not. A list that has evictd's own cgroup is refused.
//
// rule: M.169
func TestAReloadChangesTheCgroupsOutsideOfThePods(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	small := n.Start("small", sandbox.Spec{Request: "60Mi"})
	small.Do("hold 2Mi")
	start := func(name string) *harness.Pod {
		return n.StartIn(n.Manifest(name, sandbox.Spec{}), filepath.Join(n.Group, "system.slice", name+".service"), nil)
	}
	before, after := start("before"), start("after")
	file := filepath.Join(n.Dir, "evictd.yaml")
	configure := func(outside string) {
		text := "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\nevictionHard: {memory.available: 80Mi}\noutside: [" + outside + "]\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	ranked := func(d *harness.Evictd, is, isNot string) {
		t.Helper()
		d.Await(is+" and not "+isNot+" in the ranking", func(s *nodestatus.Status) bool {
			has := func(group string) bool {
				return slices.ContainsFunc(s.Ranking[memorySignal], func(r nodestatus.Ranked) bool { return r.Pod == "/"+group })
			}
			return has(is) && !has(isNot)
		})
	}
	const first, second = "system.slice/before.service", "system.slice/after.service"
	configure(first)
	d := n.Evictd(sandbox.Config(file), longTransition)
	d.AwaitPods(memorySignal, small)
	ranked(d, first, second)
	configure(strings.TrimPrefix(n.Pods().Path(), n.Group+"/"))
	d.Signal(syscall.SIGHUP)
	d.AwaitLog("the new configuration is refused")
	ranked(d, first, second)
	configure(second)
	d.Signal(syscall.SIGHUP)
	ranked(d, second, first)
	before.Do("hold 90Mi")
	after.Send("hold 90Mi")
	d.Await("the end of the service", func(s *nodestatus.Status) bool { return len(s.Evictions) == 1 && !s.Evictions[0].Gone.IsZero() })
	if e := d.Status().Evictions[0]; e.Pod != "/"+second {
		t.Errorf("evicted %+v", e)
	}
	harness.MustRun(t, small, before)
	harness.Await(t, "the service to end", func() bool { return !after.Runs() })
}
