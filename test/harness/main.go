// Package harness is what tests of running programs share: nodes that are bounded
// cgroups, pods that are processes, evictd's own programs, API servers, and waits. What
// it starts ends with the test, what it makes is removed then, and what a program logged
// is shown where the test failed.
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
//
//	n := harness.NewNode(t, 256*harness.MiB, 200)
//	leaker := n.Start("leaker", sandbox.Spec{Request: "8Mi"})
//	e := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
//	e.AwaitPods("memory.available", leaker)
//	leaker.Tell("leak 0 400Mi")
//	e.AwaitGone(leaker)
package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/workload"
)

// MiB is a number of bytes.
const MiB = 1 << 20

// dirVariable names the directory that everything of one run of tests is in, and
// dirName begins its name and those of the run's cgroups.
const (
	dirVariable = "EVICTD_TEST_DIR"
	dirName     = "evictd-run-"
)

// base is that directory, "" where TestMain does not call Main.
var base string

// Main is what TestMain returns to os.Exit. It runs the tests in a process of their own
// and removes afterwards what they left behind, also where they panicked or took too
// long; then it fails. What runs left behind whose processes were killed it removes
// first. more finds what only the caller's tests leave behind. A test binary that is
// started as a workload becomes that instead.
func Main(m *testing.M, more ...func(dir string) []Trace) int {
	workload.Main()
	if base = os.Getenv(dirVariable); base != "" {
		os.Unsetenv(dirVariable) // no program that a test starts is part of this run
		return m.Run()
	}
	sweepKilledRuns(more)
	dir, lock, err := newRun()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Close()
	code, err := runTests(dir)
	faults := []error{err}
	for _, left := range traces(dir, more) {
		faults = append(faults, fmt.Errorf("left behind: %s", left.What))
	}
	faults = append(faults, Sweep(dir, more...), os.RemoveAll(dir))
	if err := errors.Join(faults...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// newRun makes the directory of a run, which this process holds a lock of until it ends.
func newRun() (dir string, lock *os.File, err error) {
	for lock == nil && err == nil {
		if dir, err = os.MkdirTemp("", dirName); err == nil {
			lock, err = lockRun(dir)
		}
	}
	if err == nil {
		err = os.Chmod(dir, 0o755) // evictd's agent, and some pods, are other users
	}
	return dir, lock, err
}

// lockRun takes the lock of a run, which is that of its directory (flock(2)). It is nil
// where another process holds it, or has removed the directory.
func lockRun(dir string) (*os.File, error) {
	lock, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if _, gone := os.Stat(dir); err == nil && gone == nil {
		return lock, nil
	}
	lock.Close()
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return nil, nil
}

// sweepKilledRuns removes the directories and traces of this user's runs that no process
// holds the lock of. What cannot be removed it reports.
func sweepKilledRuns(more []func(dir string) []Trace) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirName+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			continue
		}
		lock, err := lockRun(dir)
		if lock != nil {
			fmt.Fprintf(os.Stderr, "removing %s, which tests that were killed left behind\n", dir)
			err = errors.Join(Sweep(dir, more...), os.RemoveAll(dir))
			lock.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func runTests(dir string) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), dirVariable+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	tests, err := process.Start(cmd)
	if err != nil {
		return 1, err
	}
	select {
	case <-tests.Ended():
	case <-ctx.Done():
		tests.Kill()
	}
	_, state := tests.End()
	if state.ExitCode() < 0 {
		return 1, fmt.Errorf("the tests ended by %v", state)
	}
	return state.ExitCode(), nil
}

// Base is the directory of the run, which every user may enter.
func Base(t testing.TB) string {
	t.Helper()
	if base == "" {
		t.Fatal("TestMain of the package does not call harness.Main")
	}
	return base
}

var dirs atomic.Int32 // made so far, for names of their own

// Dir makes a directory that every user may enter, with a path short enough for
// sockets. It is removed at the end of the test, with what came of it: see Sweep.
func Dir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(Base(t), strconv.Itoa(int(dirs.Add(1))))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(Sweep(dir), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// built is the result of building each program, by its name.
var built sync.Map // of func() error

// Program is the path of one of evictd's programs, which is built unless
// sandbox.ProgramsVariable is set. evictd-agent is beside evictd.
func Program(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv(sandbox.ProgramsVariable); dir != "" {
		return filepath.Join(dir, name)
	}
	dir, names := filepath.Join(Base(t), "bin"), []string{name}
	if name == "evictd" {
		names = append(names, "evictd-agent")
	}
	build, _ := built.LoadOrStore(name, sync.OnceValue(func() error { return sandbox.Build(dir, names...) }))
	if err := build.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// podProgram is this test binary where every user can start it.
var podProgram = sync.OnceValues(func() (string, error) {
	file := filepath.Join(base, "workload")
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if os.Link(self, file) == nil {
		return file, nil
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o755)
})
