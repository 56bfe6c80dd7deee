package runtest_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/runtest"
)

// endVariable has a run end as it says, with a process, a file and, where the
// user may make one, a cgroup that it does not remove.
const endVariable = "EVICTD_RUNTEST_END"

func TestMain(m *testing.M) { os.Exit(runtest.Main(m, nil)) }

// leave is what another run does.
func leave(t *testing.T, end string) {
	// The shell ends; its child is an orphan in a session of its own.
	out, err := exec.Command("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	var pid int
	if err == nil {
		_, err = fmt.Sscan(string(out), &pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(os.TempDir(), "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if cgroups, err := cgroup.Discover(""); err == nil && os.Geteuid() == 0 {
		if err := errors.Join(cgroups.Create(runtest.Group("left"), cgroup.Limits{}), cgroups.Add(runtest.Group("left"), pid)); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("left:", pid, runtest.Dir())
	switch end {
	case "pass":
		syscall.Kill(pid, syscall.SIGKILL)
	case "panic":
		go panic("of the test")
		select {}
	case "hang":
		select {}
	}
}

// another starts another run.
func another(t *testing.T, end string) (run *exec.Cmd, out *bufio.Reader, pid int, dir string) {
	t.Helper()
	run = exec.Command("/proc/self/exe", "-test.run=^TestNothingIsLeftOfTestsThatAreKilled$")
	run.Env = append(os.Environ(), endVariable+"="+end)
	pipe, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	run.Stderr = run.Stdout
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	out = bufio.NewReader(pipe)
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(line, "left: %d %s", &pid, &dir); err == nil {
			return run, out, pid, dir
		}
	}
}

// mustBeGone waits until nothing is left of a run.
func mustBeGone(t *testing.T, pid int, dir string) {
	t.Helper()
	runtest.Await(t, "the process, the cgroup and the directory to be removed", func() bool {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir) + "*")
		unified, _ := filepath.Glob("/sys/fs/cgroup/" + filepath.Base(dir) + "*")
		_, err := os.Stat(dir)
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && len(groups)+len(unified) == 0 && os.IsNotExist(err)
	})
}

func TestNothingIsLeftOfTestsThatEndThemselves(t *testing.T) {
	for _, end := range []string{"pass", "panic"} {
		t.Run(end, func(t *testing.T) {
			run, out, pid, dir := another(t, end)
			var told strings.Builder
			_, _ = out.WriteTo(&told)
			if err := run.Wait(); err == nil && (end == "panic" || os.Geteuid() == 0) {
				t.Errorf("the run passes: %s", &told)
			}
			if end == "panic" && !strings.Contains(told.String(), "left behind: process") {
				t.Errorf("no process was left behind: %s", &told)
			}
			if os.Geteuid() == 0 && !strings.Contains(told.String(), "left behind: cgroup") {
				t.Errorf("no cgroup was left behind: %s", &told)
			}
			mustBeGone(t, pid, dir)
		})
	}
}

func TestNothingIsLeftOfTestsThatAreKilled(t *testing.T) {
	if end := os.Getenv(endVariable); end != "" {
		leave(t, end)
		return
	}
	run, _, pid, dir := another(t, "hang")
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, pid, dir)
	_ = run.Wait() // it was killed
}
