package watch

import (
	"bytes"
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
	"github.com/evictd/evictd/stats"
)

// realGroup creates a bounded group of this host and takes it away again.
func realGroup(t *testing.T) (*cgroup.System, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: creating cgroups needs root")
	}
	s, err := cgroup.Discover("")
	if err != nil {
		t.Skip("skipped: no cgroups to read here:", err)
	}
	root := fmt.Sprintf("/evictd-oom-%d-%s", os.Getpid(), strings.ToLower(t.Name()))
	if err := s.Create(root, cgroup.Limits{Memory: stats.Known(256 << 20), PIDs: stats.Known(64)}); err != nil {
		t.Skip("skipped: cgroups cannot be created here:", errors.Join(err, s.Delete(root)))
	}
	t.Cleanup(func() {
		if err := s.Delete(root); err != nil {
			t.Error(err)
		}
	})
	return s, root
}

// burst makes a group of 16 MiB and a process of that name which wants more, until
// the kernel has killed it.
func burst(t *testing.T, s *cgroup.System, group, name string) (pid int) {
	t.Helper()
	if err := s.Create(group, cgroup.Limits{Memory: stats.Known(16 << 20)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Delete(group); err != nil {
			t.Error(err)
		}
	})
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(shell, program); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, "-c", `read go; x=x; while :; do x=$x$x; done`)
	in, err := c.StdinPipe()
	if err = errors.Join(err, c.Start(), s.Add(group, c.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go")
	if err := c.Wait(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatal("the kernel has not killed it:", err)
	}
	return c.Process.Pid
}

// follow runs a Watcher and returns its first kills; any more are a fault.
func follow(t *testing.T, cfg Config, do func(), want int) (kills []Kill, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	told := make(chan Kill, 100)
	var text bytes.Buffer
	w := New(cfg, func(k Kill) { told <- k }, slog.New(slog.NewTextHandler(&text, nil)))
	var running sync.WaitGroup
	looked := make(chan struct{})
	pods := cfg.Pods
	var once sync.Once
	w.cfg.Pods = func() []Pod {
		defer once.Do(func() { close(looked) })
		return pods()
	}
	running.Go(func() { _ = w.Run(ctx) })
	<-looked
	do()
	for range want {
		select {
		case k := <-told:
			kills = append(kills, k)
		case <-ctx.Done():
			t.Errorf("told only of %+v", kills)
		}
	}
	cancel()
	running.Wait()
	if len(told) > 0 {
		t.Errorf("told also of %+v", <-told)
	}
	return kills, text.String()
}

func TestAKernelKillIsTiedToItsPodWhateverItsProcessIsNamed(t *testing.T) {
	held, err := os.Open(Log) // as the service manager does
	if err != nil {
		t.Skip("skipped: the kernel's log cannot be read here:", err)
	}
	s, root := realGroup(t)
	pods := []Pod{{"a", root + "/kubepods/poda"}, {"b", root + "/kubepods/podb"}}
	if err := s.Create(pods[1].Cgroup, cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Held: held, Cgroups: s, Root: root, Pods: func() []Pod { return pods }, Every: time.Second}
	var pid int
	kills, log := follow(t, cfg, func() { pid = burst(t, s, root+"/kubepods/podb/c", ",pid=1,uid=0") }, 1)
	if len(kills) != 1 {
		t.Fatal(log)
	}
	k := kills[0]
	if k.Limit == OfUnknown {
		t.Skip("skipped: the kernel has not said whom it killed, for it killed ten others within 5 s")
	}
	if n := k.Memory.Or(0); n < 1<<20 || n > 32<<20 || time.Since(k.At) > time.Minute {
		t.Errorf("memory %d at %v", n, k.At)
	}
	k.At, k.Memory = time.Time{}, stats.Amount{}
	want := Kill{Pod: "b", Limit: OfPod, PID: pid, Processes: 1, Process: ",pid=1,uid=0", Cgroup: root + "/kubepods/podb/c"}
	if k != want {
		t.Errorf("got %+v, want %+v", k, want)
	}
}

func TestTheCountersTellWhereTheLogCannotBeRead(t *testing.T) {
	s, root := realGroup(t)
	pods := []Pod{{"a", root + "/kubepods/poda"}, {"b", root + "/kubepods/podb"}, {"", root + "/bare"}, {"", root + "not"}}
	for _, p := range pods {
		if err := s.Create(p.Cgroup, cgroup.Limits{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Delete(p.Cgroup) })
	}
	burst(t, s, root+"/kubepods/podb/before", "before")
	cfg := Config{Log: filepath.Join(t.TempDir(), "none"), Cgroups: s, Root: root, Pods: func() []Pod { return pods }, Every: 10 * time.Millisecond}
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
	if n := strings.Count(log, "level="); n != 1 || !strings.Contains(log, "told by the pods' counters alone") {
		t.Errorf("the log says %s", log)
	}
}

// The pipe is the kernel's log.
func TestTheLogAndTheCountersTellOfEachKillOnce(t *testing.T) {
	s, root := realGroup(t)
	pods := []Pod{{"b", root + "/kubepods/podb"}}
	if err := s.Create(pods[0].Cgroup, cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Delete(pods[0].Cgroup) })
	pipe := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cfg := Config{Log: pipe, Cgroups: s, Root: root, Pods: func() []Pod { return pods }, Every: 200 * time.Millisecond}
	kills, _ := follow(t, cfg, func() {
		pid := burst(t, s, root+"/kubepods/podb/said", "said")
		burst(t, s, root+"/kubepods/podb/unsaid", "unsaid")
		below := root + "/kubepods/podb/said"
		fmt.Fprintf(in, "4,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=%s,\n4,2,2,c;task_memcg=%s,task=said,pid=%d,uid=0\n", below, below, pid)
		fmt.Fprintf(in, "3,3,3,-;Memory cgroup out of memory: Killed process %d (said) total-vm:1kB, anon-rss:1kB\n", pid)
		fmt.Fprintln(in, "3,4,4,-;Memory cgroup out of memory: Killed process 1 (suppressed) total-vm:1kB, anon-rss:1kB")
		fmt.Fprintln(in, "11,5,5,-;Out of memory: Killed process 1 (forged) total-vm:1kB, anon-rss:1kB")
		fmt.Fprintln(in, "3,6,6,-;Out of memory: Killed process 2 (somebody) total-vm:1kB, anon-rss:1kB")
		for i, group := range []string{"/elsewhere", root + "/other"} {
			fmt.Fprintf(in, "4,7,7,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=%s,task_memcg=%s,task=x,pid=%d,uid=0\n", group, group, 3+i)
			fmt.Fprintf(in, "3,8,8,-;Memory cgroup out of memory: Killed process %d (x) total-vm:1kB, anon-rss:1kB\n", 3+i)
		}
	}, 4)
	var got []string
	for _, k := range kills {
		got = append(got, fmt.Sprint(k.Pod, " ", k.Limit, " ", k.Process, " ", k.Processes))
	}
	if want := []string{"b pod said 1", " node somebody 1", " other x 1", "b unknown  1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
