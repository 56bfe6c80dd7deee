package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// nobody owns nothing.
const nobody = 65534

// built is the directory of both programs.
var built string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "pg-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(built)
		build := exec.Command("go", "build", "-buildvcs=false", "-o", built, ".", "../evictd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("build: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

// programs links both programs into a directory that everybody may read, beside
// an empty one for temporary files.
func programs(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg-") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"evictd-playground", "evictd"} {
		if err := os.Link(filepath.Join(built, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	tmp := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Mkdir(tmp, 0o777), os.Chmod(tmp, 0o777), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// started is a playground that runs.
type started struct {
	*exec.Cmd
	dir    string
	stdout *bufio.Reader
	errs   bytes.Buffer
	told   strings.Builder
}

func play(t *testing.T, asNobody bool, args ...string) *started {
	t.Helper()
	s := &started{dir: programs(t)}
	s.Cmd = exec.Command(filepath.Join(s.dir, "evictd-playground"), args...)
	s.Env = append(os.Environ(), "TMPDIR="+filepath.Join(s.dir, "tmp"))
	s.Dir = s.dir
	s.Stderr = &s.errs
	if asNobody && os.Geteuid() == 0 {
		s.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdout = bufio.NewReader(out)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// until reads on until a line holds the text.
func (s *started) until(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := s.stdout.ReadString('\n')
		s.told.WriteString(line)
		if err != nil {
			t.Fatalf("it never said %q: %s%s", text, &s.told, &s.errs)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// end waits for the end, and for an exit code.
func (s *started) end(t *testing.T, code int) {
	t.Helper()
	if _, err := io.Copy(&s.told, s.stdout); err != nil {
		t.Error(err)
	}
	_ = s.Wait() // its code is looked at
	if s.ProcessState.ExitCode() != code {
		t.Errorf("it ended with %v, want exit code %d:\n%s%s", s.ProcessState, code, &s.told, &s.errs)
	}
}

func (s *started) says(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(s.told.String()+s.errs.String(), text) {
			t.Errorf("it did not say %q:\n%s%s", text, &s.told, &s.errs)
		}
	}
}

// leavesNothing looks for files, processes and cgroups.
func (s *started) leavesNothing(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil || len(files) > 0 {
		t.Errorf("files are left: %v %v", files, err)
	}
	if left := s.children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	name := "evictd-playground-" + strconv.Itoa(s.Process.Pid)
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("cgroups are left: %v", left)
		}
	}
}

// children are the processes that run one of the two programs.
func (s *started) children(t *testing.T) (left []string) {
	t.Helper()
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range programs {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, s.dir) {
			left = append(left, link)
		}
	}
	return left
}

// needCgroups skips where no cgroup can be made.
func needCgroups(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Skip(err)
	}
	probe := "/evictd-playground-test-" + strconv.Itoa(os.Getpid()) + "/" + t.Name()
	err = cgroups.Create(probe, cgroup.Limits{Memory: stats.Known(16 * mib), PIDs: stats.Known(16)})
	if deleted := cgroups.Delete(filepath.Dir(probe)); deleted != nil {
		t.Error(deleted)
	}
	if err != nil {
		t.Skip(err)
	}
}

func TestTheRightPodIsEvictedFromABoundedCgroup(t *testing.T) {
	needCgroups(t)
	t.Parallel()
	s := play(t, false)
	s.end(t, 0)
	s.says(t, "cgroup /evictd-playground-", "shop/crawler is first", "MemoryPressure=True", "evicted    shop/worker",
		"its request, shop/crawler", "shop/database uses most", "MemoryPressure=False", "yes  nobody else died",
		"yes  the kernel killed nobody")
	s.leavesNothing(t)
}

func TestWithoutPrivilegesTheSameStoryGoesThroughProcfs(t *testing.T) {
	t.Parallel()
	s := play(t, true)
	s.end(t, 0)
	s.says(t, "no cgroup can be made here (not root)", "shop/crawler is first", "MemoryPressure=True", "evicted    shop/worker",
		"its request, shop/crawler", "shop/database uses most", "MemoryPressure=False", "yes  nobody else died")
	s.leavesNothing(t)
}

func TestAnInterruptedPlaygroundSaysSoAndCleansUp(t *testing.T) {
	for name, signal := range map[string]os.Signal{"SIGINT": os.Interrupt, "SIGTERM": syscall.SIGTERM} {
		for moment, text := range map[string]string{"while it sets up": "node  ", "while a pod leaks": "leak  "} {
			t.Run(name+" "+moment, func(t *testing.T) {
				t.Parallel()
				s := play(t, false)
				s.until(t, text)
				if err := s.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				s.end(t, exitInterrupted)
				s.says(t, "interrupted: cleaning up")
				s.leavesNothing(t)
			})
		}
	}
}

func TestADaemonThatDoesNotStartIsShownWithItsLog(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "evictd")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no luck today >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := play(t, false, "--evictd", broken)
	s.end(t, exitFault)
	s.says(t, "evictd did not start: exit status 3", "no luck today")
	s.leavesNothing(t)
}

func TestAMissingDaemonOrABadFlagIsNamed(t *testing.T) {
	t.Parallel()
	s := play(t, false, "--evictd", "/nonexistent/evictd")
	s.end(t, exitFault)
	s.says(t, "/nonexistent/evictd")
	s = play(t, false, "--evict")
	s.end(t, exitBadInput)
	s.says(t, "--evict")
}

func TestAKilledPlaygroundTakesItsChildrenAlong(t *testing.T) {
	t.Parallel()
	s := play(t, false, "--procfs")
	s.until(t, "leak  ")
	if err := s.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.end(t, -1)
	const patience = 10 * time.Second
	for late := time.Now().Add(patience); len(s.children(t)) > 0; {
		if time.Now().After(late) {
			t.Fatalf("processes are left after %v: %v", patience, s.children(t))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestALeakEndsByItselfAtItsCap(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(filepath.Join(built, "evictd-playground"), "pod", "--hold", "4Mi", "--leak", "100Mi", "--cap", "8Mi")
	commands, err1 := cmd.StdinPipe()
	replies, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	n := &node{}
	p := &pod{process: &process{pid: cmd.Process.Pid}, commands: commands, replies: replies}
	if err := errors.Join(n.place(p), p.fill()); err != nil {
		t.Fatal(err)
	}
	defer n.remove()
	held := n.unused()
	if err := p.next(); err != nil {
		t.Fatal(err)
	}
	taken := int64(0)
	for late := time.Now().Add(10 * time.Second); n.unused() < nodeMemory && time.Now().Before(late); {
		if taken = max(taken, held-n.unused()); taken >= 7*mib {
			commands.Close() // then it ends as soon as the leak has
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if taken < 7*mib || taken > 10*mib {
		t.Errorf("it took %s, want 8Mi", size(taken))
	}
}
