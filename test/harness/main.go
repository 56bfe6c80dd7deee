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
//	leaker.Send("leak 0 400Mi")
//	e.AwaitGone(leaker)
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/internal/workload"
)

// MiB is a number of bytes.
const MiB = 1 << 20

// dirVariable has a process run the tests, in the directory that everything of the run
// is in. dirName begins the name of that directory and those of the run's cgroups.
const (
	dirVariable = "EVICTD_TEST_DIR"
	dirName     = "evictd-run-"
)

// keeperName is the first argument of every keeper, which has it run the tests as a
// child of its own.
const keeperName = "evictd-test-keeper"

// base is the directory of the run, "" where TestMain does not call Main.
var base string

// Main is what TestMain returns to os.Exit. A keeper runs the tests as its child, with
// TMPDIR in the directory of the run. When they have ended, or the process that `go
// test` started was killed, the keeper removes every process, cgroup, mount, loop device
// and file that they left behind. It fails the run if there was anything but files. more
// finds what only the caller's tests leave behind. A test binary that is started as a
// workload becomes that instead.
func Main(m *testing.M, more ...func(dir string) []Trace) int {
	workload.Main()
	if base = os.Getenv(dirVariable); base != "" {
		os.Unsetenv(dirVariable) // no program that a test starts is part of this run
		return m.Run()
	}
	run := startKeeper
	if os.Args[0] == keeperName {
		run = func() (int, error) { return keep(more) }
	}
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// startKeeper runs the keeper in a session of its own, so that a signal to this
// process group does not reach it. Its standard input ends with this process.
func startKeeper() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	keeper := exec.Command("/proc/self/exe", os.Args[1:]...)
	keeper.Args[0] = keeperName
	keeper.Stdout, keeper.Stderr = os.Stdout, os.Stderr
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := keeper.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := keeper.Start(); err != nil {
		return 0, err
	}
	context.AfterFunc(ctx, func() { alive.Close() })
	_ = keeper.Wait() // the state says how it ended
	if code = keeper.ProcessState.ExitCode(); code < 0 {
		return 0, fmt.Errorf("the keeper of the tests ended by %v", keeper.ProcessState)
	}
	return code, nil
}

// becomeSubreaper is PR_SET_CHILD_SUBREAPER, see prctl(2).
const becomeSubreaper = 36

// keep runs the tests until they end or standard input does. The keeper is the parent
// of all orphans among the processes that they start.
func keep(more []func(dir string) []Trace) (code int, err error) {
	ctx, abandon := context.WithCancel(context.Background())
	defer abandon()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		abandon()
	}()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // the reader of standard output may end before the keeper
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, becomeSubreaper, 1, 0); errno != 0 {
		return 0, fmt.Errorf("become the parent of orphans: %w", errno)
	}
	dir, err := os.MkdirTemp("", dirName)
	if err != nil {
		return 0, err
	}
	temporary := filepath.Join(dir, "tmp")
	// evictd's agent, and some pods, are other users
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(temporary, 0o700), os.Chmod(temporary, 0o777|os.ModeSticky))
	more = slices.Concat([]func(string) []Trace{keeperTraces()}, more)
	if err == nil {
		code, err = runTests(ctx, dir, temporary)
	}
	faults := []error{err}
	if ctx.Err() == nil {
		for _, left := range traces(dir, more) {
			faults = append(faults, fmt.Errorf("left behind: %s", left.What))
		}
	}
	return code, errors.Join(append(faults, Sweep(dir, more...), os.RemoveAll(dir))...)
}

// runTests runs the tests until they or ctx have ended. It waits for the end of
// processes that tests have killed, unless the tests panicked.
func runTests(ctx context.Context, dir, temporary string) (code int, err error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), dirVariable+"="+dir, "TMPDIR="+temporary)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := process.Spawn(cmd); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(cmd.Process.Pid, syscall.SIGKILL) })
	status, err := reapUntil(cmd.Process.Pid)
	stop()
	if err != nil {
		return 0, err
	}
	if status.Signaled() {
		return 0, fmt.Errorf("the tests ended by %v", status.Signal())
	}
	const failed = 1 // exit code of tests that have failed; it is 2 where they panicked
	if code = status.ExitStatus(); code <= failed {
		ctx, cancel := context.WithTimeout(ctx, wait.Limit)
		defer cancel()
		_ = wait.That(ctx, func() bool { return len(descendants(os.Getpid())) == 0 }) // the others are left behind
	}
	return code, nil
}

// reapUntil reaps children until a certain one has ended.
func reapUntil(pid int) (status syscall.WaitStatus, err error) {
	for {
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return status, fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if err == nil && ended == pid {
			return status, nil
		}
	}
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
// sockets. It is removed at the end of the test, with its traces: see Sweep.
func Dir(t testing.TB, more ...func(dir string) []Trace) string {
	t.Helper()
	dir := filepath.Join(Base(t), strconv.Itoa(int(dirs.Add(1))))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		if err := errors.Join(Sweep(dir, more...), os.RemoveAll(dir)); err != nil {
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
	require.NoError(t, build.(func() error)())
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
