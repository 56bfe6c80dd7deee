package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cgroup/cgrouptest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// realGroup makes a bounded group of this host.
func realGroup(t *testing.T) (*cgroup.System, string) {
	t.Helper()
	return cgrouptest.New(t, cgroup.Limits{Memory: stats.Known(256 << 20), PIDs: stats.Known(64)})
}

// deleteLater removes a group at the end of the test.
func deleteLater(t *testing.T, s *cgroup.System, group string) {
	t.Cleanup(func() { // processes that were killed may live for a moment yet
		wait.Until(t, "the group "+group+" to be removed", func() bool { return s.Delete(group) == nil })
	})
}

// burst makes a group of 16 MiB and a process of that name which wants more, until
// the kernel has killed it.
func burst(t *testing.T, s *cgroup.System, group, name string) (pid int) {
	t.Helper()
	require.NoError(t, s.Create(group, cgroup.Limits{Memory: stats.Known(16 << 20)}))
	deleteLater(t, s, group)
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Symlink(shell, program))
	c := exec.CommandContext(t.Context(), program, "-c", `read go; x=x; while :; do x=$x$x; done`)
	in, err := c.StdinPipe()
	require.NoError(t, errors.Join(err, c.Start(), s.Add(group, c.Process.Pid)))
	fmt.Fprintln(in, "go")
	if err := c.Wait(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatal("the kernel has not killed it:", err)
	}
	return c.Process.Pid
}

// follow runs a Watcher and returns its first kills; any more are a fault. It does
// what is to be followed once the log has been opened and, where there is none, the
// counters have been read.
func follow(t *testing.T, cfg Config, do func(), want int) (kills []Kill, log string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reported := make(chan Kill, 100)
	var text wait.Log
	w := New(cfg, func(k Kill) { reported <- k }, slog.New(slog.NewTextHandler(&text, nil)))
	var running sync.WaitGroup
	opened := make(chan struct{})
	pods := cfg.Pods
	var once sync.Once
	w.cfg.Pods = func() []Pod {
		once.Do(func() { close(opened) })
		return pods()
	}
	running.Go(func() { _ = w.Run(ctx) })
	if <-opened; cfg.OpenLog == nil && cfg.Log == "" {
		wait.Until(t, "the counters to be all there is", func() bool { return strings.Contains(text.String(), withoutLog) })
	}
	do()
	wait.Until(t, fmt.Sprint(want, " kills"), func() bool { return len(reported) >= want })
	cancel()
	running.Wait()
	for range want {
		kills = append(kills, <-reported)
	}
	if len(reported) > 0 {
		t.Errorf("reported also %+v", <-reported)
	}
	return kills, text.String()
}

// withoutLog is part of what is logged after the first look at the counters.
const withoutLog = "found by the pods' counters alone"

func TestAKernelKillIsTiedToItsPodWhateverItsProcessIsNamed(t *testing.T) {
	held, err := os.Open(Log) // as the service manager does
	if err != nil {
		t.Skip("skipped: needs to read /dev/kmsg (root, or kernel.dmesg_restrict=0):", err)
	}
	s, root := realGroup(t)
	pods := []Pod{{"a", root + "/kubepods/poda"}, {"b", root + "/kubepods/podb"}}
	require.NoError(t, s.Create(pods[1].Cgroup, cgroup.Limits{}))
	cfg := Config{OpenLog: held, Cgroups: s, Root: root, Pods: func() []Pod { return pods }, Every: time.Second}
	var pid int
	began := time.Now()
	kills, _ := follow(t, cfg, func() { pid = burst(t, s, root+"/kubepods/podb/c", ",pid=1,uid=0") }, 1)
	k := kills[0]
	if k.Limit == OfUnknown {
		t.Skip("skipped: needs a kernel log that is complete: the kernel leaves victims out after ten within 5 s")
	}
	if n := k.Memory.Or(0); n < 1<<20 || n > 32<<20 || k.At.Before(began) || k.At.After(time.Now()) {
		t.Errorf("memory %d at %v", n, k.At)
	}
	k.At, k.Memory = time.Time{}, stats.Amount{}
	want := Kill{Pod: "b", Limit: OfPod, PID: pid, Processes: 1, Process: ",pid=1,uid=0", Cgroup: root + "/kubepods/podb/c"}
	if k != want {
		t.Errorf("got %+v, want %+v", k, want)
	}
}

func TestTheCountersAreUsedWhereTheLogCannotBeRead(t *testing.T) {
	s, root := realGroup(t)
	pods := []Pod{{"a", root + "/kubepods/poda"}, {"b", root + "/kubepods/podb"}, {"", root + "/bare"}, {"", root + "not"}}
	for _, p := range pods {
		require.NoError(t, s.Create(p.Cgroup, cgroup.Limits{}))
		deleteLater(t, s, p.Cgroup)
	}
	burst(t, s, root+"/kubepods/podb/before", "before")
	cfg := Config{Cgroups: s, Root: root, Pods: func() []Pod { return pods }, Every: 10 * time.Millisecond}
	kills, log := follow(t, cfg, func() {
		for _, p := range pods[1:] {
			burst(t, s, p.Cgroup+"/after", "after")
		}
	}, 2)
	var got []string
	for _, k := range kills {
		got = append(got, fmt.Sprint(k.Pod, " ", k.Cgroup, " ", k.Limit, " ", k.Processes))
	}
	if want := []string{"b " + pods[1].Cgroup + " unknown 1", " " + pods[2].Cgroup + " unknown 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := strings.Count(log, "level="); n != 1 || !strings.Contains(log, withoutLog) {
		t.Errorf("the log says %s", log)
	}
}

// linesOf are lines of the kernel log about a process that it has killed in a group.
func linesOf(pid int, process, group string) string {
	return fmt.Sprintf("4,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=%s,\n4,2,2,c;task_memcg=%s,task=%s,pid=%d,uid=0\n"+
		"3,3,3,-;Memory cgroup out of memory: Killed process %[4]d (%[3]s) total-vm:1kB, anon-rss:1kB\n", group, group, process, pid)
}

// The pipe is the kernel's log.
func TestTheLogShowsOfEachKillThatIsTheNodes(t *testing.T) {
	s, root := realGroup(t)
	pods := []Pod{{"b", root + "/kubepods/podb"}}
	pipe := filepath.Join(t.TempDir(), "kmsg")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	in, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer in.Close()
	cfg := Config{Log: pipe, Cgroups: s, Root: root, Pods: func() []Pod { return pods }}
	kills, _ := follow(t, cfg, func() {
		fmt.Fprint(in, linesOf(7, "said", pods[0].Cgroup+"/said"))
		fmt.Fprintln(in, "3,4,4,-;Memory cgroup out of memory: Killed process 1 (suppressed) total-vm:1kB, anon-rss:1kB")
		fmt.Fprintln(in, "11,5,5,-;Out of memory: Killed process 1 (forged) total-vm:1kB, anon-rss:1kB")
		fmt.Fprintln(in, "3,6,6,-;Out of memory: Killed process 2 (other) total-vm:1kB, anon-rss:1kB")
		fmt.Fprint(in, linesOf(3, "x", "/elsewhere"), linesOf(4, "x", root+"/other"))
	}, 3)
	if got, want := lines(kills), []string{"b pod said 1", " node other 1", " other x 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func lines(kills []Kill) (texts []string) {
	for _, k := range kills {
		texts = append(texts, fmt.Sprint(k.Pod, " ", k.Limit, " ", k.Process, " ", k.Processes))
	}
	return texts
}

func TestTheLogAndTheCountersReportEachKillOnce(t *testing.T) {
	s, root := realGroup(t)
	pods := []Pod{{"b", root + "/kubepods/podb"}}
	require.NoError(t, s.Create(pods[0].Cgroup, cgroup.Limits{}))
	deleteLater(t, s, pods[0].Cgroup)
	var kills []Kill
	w := New(Config{Cgroups: s, Root: root, Pods: func() []Pod { return pods }}, func(k Kill) { kills = append(kills, k) }, slog.New(slog.DiscardHandler))
	w.checkCounters(true)
	pid := burst(t, s, pods[0].Cgroup+"/said", "said")
	burst(t, s, pods[0].Cgroup+"/unsaid", "unsaid")
	for line := range strings.Lines(linesOf(pid, "said", pods[0].Cgroup+"/said")) {
		w.readLine(strings.TrimSuffix(line, "\n"))
	}
	if waits := w.checkCounters(true); !waits || len(kills) != 1 {
		t.Errorf("before the log has had its time: %q, waits for it %v", lines(kills), waits)
	}
	for range 3 {
		w.checkCounters(true)
	}
	if got, want := lines(kills), []string{"b pod said 1", "b unknown  1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
