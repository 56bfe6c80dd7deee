package node_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// TestCampaignIdleCost reports what a daemon costs on a node where nothing
// happens, once its start is over. Its pods sleep.
func TestCampaignIdleCost(t *testing.T) {
	campaign.Only(t)
	start, watched := campaign.Size(40*time.Second, time.Second), campaign.Size(2*time.Minute, time.Second)
	for _, c := range []struct{ memory, pods int64 }{{bombNode, 4}, {bombNode, 110}, {8 << 30, 110}}[:campaign.Size(3, 1)] {
		t.Run(fmt.Sprintf("%d MiB and %d pods", c.memory/harness.MiB, c.pods), func(t *testing.T) {
			n := harness.NewNode(t, c.memory, nodePIDs)
			for i := range c.pods {
				startSleeper(n, fmt.Sprintf("pod-%d", i))
			}
			d := n.Evictd(sandbox.EvictionHard("memory.available<100Mi"), sandbox.Housekeeping("10s"))
			d.Await("evictd to know the pods", func(s *nodestatus.Status) bool { return len(s.Ranking[memorySignal]) == int(c.pods) })
			<-time.After(start)
			before := processorTime(t, strconv.Itoa(d.PID()))
			<-time.After(watched)
			spent := processorTime(t, strconv.Itoa(d.PID())) - before
			t.Logf("%v of processor time in %v (%.3f %%), VmRSS %s, RssAnon %s, RssFile %s", spent, watched,
				100*spent.Seconds()/watched.Seconds(), procStatus(d, "VmRSS"), procStatus(d, "RssAnon"), procStatus(d, "RssFile"))
		})
	}
}

// TestNothingButTheThresholdsWakesAnIdleNode waits for a time without a read of an evictd that
// has neither a housekeeping pass to make nor a threshold near: it looks at the node every five
// seconds, and where the kernel notifies of stalls, which other tests may cause.
func TestNothingButTheThresholdsWakesAnIdleNode(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, 8<<30, nodePIDs)
	startSleeper(n, "pod")
	d := n.Evictd(sandbox.EvictionHard("memory.available<100Mi"), sandbox.Housekeeping("1h"))
	d.Await("evictd to know the pod", func(s *nodestatus.Status) bool { return len(s.Ranking[memorySignal]) == 1 })
	const quiet, ofAPass = 2500 * time.Millisecond, 10
	harness.Await(t, "evictd to read nothing for "+quiet.String(), func() bool {
		before := reads(t, d.PID())
		<-time.After(quiet)
		return reads(t, d.PID())-before < ofAPass
	})
}

// reads is how many times a process has read from files so far (proc_pid_io(5)).
func reads(t testing.TB, pid int) (calls int) {
	t.Helper()
	text := require.ReadFile(t, fmt.Sprintf("/proc/%d/io", pid))
	_, rest, _ := strings.Cut(string(text), "syscr: ")
	_, err := fmt.Sscan(rest, &calls)
	require.NoError(t, err)
	return calls
}

// TestRegularWorkOfAnIdleNodeComesTogether waits for a housekeeping interval in which evictd wakes
// three times: for the housekeeping pass, at a multiple of the interval on the host's clock, with all
// other regular work; for the poll five seconds later; and a second before the next, to ask for disk
// figures. Stalls that other tests cause may wake it, and so does the disk scan of each minute.
func TestRegularWorkOfAnIdleNodeComesTogether(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, 8<<30, nodePIDs)
	const pods = 20
	for i := range pods {
		startSleeper(n, fmt.Sprintf("pod-%d", i))
	}
	d := n.Evictd(sandbox.EvictionHard("memory.available<100Mi"), sandbox.Housekeeping("10s"))
	d.Await("evictd to know the pods", func(s *nodestatus.Status) bool { return len(s.Ranking[memorySignal]) == pods })
	const interval, sample, late = 10 * time.Second, 50 * time.Millisecond, 700 * time.Millisecond
	due := []time.Duration{0, 5 * time.Second, 9 * time.Second}
	harness.Await(t, "evictd to sleep between what is due in "+interval.String(), func() bool {
		begin := time.Now().Truncate(interval).Add(interval)
		<-time.After(time.Until(begin))
		for before := switches(t, d.PID()); ; {
			<-time.After(sample)
			after, at := switches(t, d.PID()), time.Since(begin)
			if at >= interval-sample {
				return true
			}
			isDue := func(from time.Duration) bool { return at >= from && at < from+late }
			if after != before && !slices.ContainsFunc(due, isDue) {
				t.Logf("evictd ran %v after a housekeeping pass", at)
				return false
			}
			before = after
		}
	})
}

// switches is how often the threads of a process have run so far (sched-stats.rst).
func switches(t testing.TB, pid int) (all int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	require.NoError(t, err)
	for _, thread := range threads {
		var onProcessor, waited int64
		var times int
		_, err := fmt.Sscan(string(require.ReadFile(t, thread)), &onProcessor, &waited, &times)
		require.NoError(t, err)
		all += times
	}
	return all
}

// startSleeper runs a pod that never does anything.
func startSleeper(n *harness.Node, name string) {
	n.T.Helper()
	m := n.Manifest(name, sandbox.Spec{Request: "1Mi"})
	n.T.Cleanup(sleepAs(n, m).wake)
	n.Write(m)
}

// sleeper is what runs of a pod that never does anything.
type sleeper struct {
	name, group string
	process     *process.Process
}

func sleepAs(n *harness.Node, m *v1.Pod) *sleeper {
	n.T.Helper()
	s := &sleeper{name: m.Name, group: n.PodGroup(m)}
	container := n.Container(s.group)
	var err error
	if s.process, err = process.Start(exec.Command("sleep", "infinity")); err != nil {
		n.T.Fatal(err)
	}
	if err := errors.Join(n.Cgroups.Create(container, cgroup.Limits{}), n.Cgroups.Add(container, s.process.PID())); err != nil {
		n.T.Fatal(err)
	}
	return s
}

// wake ends it.
func (s *sleeper) wake() { s.process.Kill() }

// processorTime is what the threads of a process have used so far, by the nanosecond
// (sched-stats.rst).
func processorTime(t testing.TB, pid string) (spent time.Duration) {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
	require.NoError(t, err)
	for _, thread := range threads {
		var onProcessor int64
		text, err := os.ReadFile(thread)
		if err == nil {
			_, err = fmt.Sscan(string(text), &onProcessor)
		}
		require.NoError(t, err)
		spent += time.Duration(onProcessor)
	}
	return spent
}

// procStatus is a line of /proc/PID/status of the daemon.
func procStatus(d *harness.Evictd, key string) string {
	d.T.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		d.T.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
