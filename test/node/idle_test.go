package node_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/nodestatus"
)

// TestCampaignIdleCost reports what a daemon costs on a node where nothing
// happens, once its start is over. Its pods sleep.
func TestCampaignIdleCost(t *testing.T) {
	campaign(t)
	if raceDetector {
		t.Skip("skipped: the race detector costs more than what is measured")
	}
	const start, watched = 40 * time.Second, 2 * time.Minute
	for _, c := range []struct{ memory, pods int64 }{{bombNode, 4}, {bombNode, 110}, {8 << 30, 110}} {
		t.Run(fmt.Sprintf("%d MiB and %d pods", c.memory/mib, c.pods), func(t *testing.T) {
			n := newNode(t, c.memory, nodePIDs)
			for i := range c.pods {
				n.startSleeper(fmt.Sprintf("pod-%d", i))
			}
			d := n.run("--eviction-hard=memory.available<100Mi", "--housekeeping-interval=10s")
			d.await("evictd to know the pods", func(s *nodestatus.Status) bool { return len(s.Ranking[memorySignal]) == int(c.pods) })
			d.Hush()
			<-time.After(start)
			before := d.processorTime()
			<-time.After(watched)
			spent := d.processorTime() - before
			t.Logf("%v of processor time in %v (%.3f %%), VmRSS %s, RssAnon %s, RssFile %s", spent, watched,
				100*spent.Seconds()/watched.Seconds(), d.procStatus("VmRSS"), d.procStatus("RssAnon"), d.procStatus("RssFile"))
		})
	}
}

// startSleeper runs a pod that never does anything.
func (n *node) startSleeper(name string) {
	n.t.Helper()
	m := n.manifest(name, podSpec{request: "1Mi"})
	n.t.Cleanup(n.sleepAs(m).wake)
	n.write(m)
}

// sleeper is what runs of a pod that never does anything.
type sleeper struct {
	name, group string
	process     *exec.Cmd
}

func (n *node) sleepAs(m *v1.Pod) *sleeper {
	n.t.Helper()
	s := &sleeper{m.Name, n.groupOf(m), exec.Command("sleep", "600")}
	container := filepath.Join(s.group, "c")
	if err := errors.Join(n.cgroups.Create(container, cgroup.Limits{}), s.process.Start()); err != nil {
		n.t.Fatal(err)
	}
	if err := n.cgroups.Add(container, s.process.Process.Pid); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// wake ends it.
func (s *sleeper) wake() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// processorTime is what the daemon's threads have used so far, by the nanosecond
// (sched-stats.rst).
func (d *daemon) processorTime() (spent time.Duration) {
	d.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.Pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, thread := range threads {
		var onProcessor int64
		text, err := os.ReadFile(thread)
		if err == nil {
			_, err = fmt.Sscan(string(text), &onProcessor)
		}
		if err != nil {
			d.t.Fatal(err)
		}
		spent += time.Duration(onProcessor)
	}
	return spent
}

// procStatus is a line of /proc/PID/status of the daemon.
func (d *daemon) procStatus(key string) string {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
