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
// happens. Its pods sleep.
func TestCampaignIdleCost(t *testing.T) {
	campaign(t)
	if raceDetector {
		t.Skip("skipped: the race detector costs more than what is measured")
	}
	for _, pods := range []int{4, 110} {
		t.Run(fmt.Sprintf("%d pods", pods), func(t *testing.T) {
			n := newNode(t, bombNode, nodePIDs)
			for i := range pods {
				n.startSleeper(fmt.Sprintf("pod-%d", i))
			}
			d := n.run("--eviction-hard=memory.available<100Mi", "--housekeeping-interval=10s")
			d.await("evictd to know the pods", func(s *nodestatus.Status) bool { return len(s.Ranking[memorySignal]) == pods })
			d.Hush()
			const watched = time.Minute
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

// processorTime is what the daemon has used so far: utime and stime, in ticks of
// 10 ms (proc_pid_stat(5)).
func (d *daemon) processorTime() time.Duration {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.Pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	var user, system int64
	fields := strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:]))
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		d.t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
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
