package runtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The environment of a run: the role of the process that is started next, and the
// directory of the run.
const (
	roleVariable = "EVICTD_TEST_ROLE"
	dirVariable  = "EVICTD_TEST_DIR"
)

// dirPrefix begins the name of the directory of a run.
const dirPrefix = "evictd-test-"

// keeperName is the first argument of every keeper.
const keeperName = "evictd-test-keeper"

// becomeSubreaper is PR_SET_CHILD_SUBREAPER, see prctl(2).
const becomeSubreaper = 36

// Main runs the tests of a package that starts programs or makes cgroups, mounts or
// loop devices. TestMain gives its result to os.Exit.
//
// The tests run in a child of a keeper, with TMPDIR below Dir, which prepare fills
// first unless it is nil. When the tests have ended, the keeper removes
// every process, cgroup, mount, loop device and file of theirs that is left, and fails
// the run if a process, cgroup, mount or loop device was. The keeper ends the tests and
// removes all of that as well when the process that `go test` started is killed.
func Main(m *testing.M, prepare func() error) int {
	role := os.Getenv(roleVariable)
	os.Unsetenv(roleVariable)
	run := runKeeper
	switch role {
	case "keeper":
		run = func() (int, error) { return keep(prepare) }
	case "tests":
		return m.Run()
	}
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Dir is the directory of the run, which every user may enter.
func Dir() string {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		panic("TestMain does not call runtest.Main")
	}
	return dir
}

// Group names a cgroup, as package cgroup does, that is removed at the end of the run.
func Group(name string) string { return "/" + filepath.Base(Dir()) + "-" + name }

// runKeeper runs the keeper in a session of its own, so that what ends this process
// does not end the keeper. The keeper's standard input ends with this process.
func runKeeper() (code int, err error) {
	keeper := exec.Command("/proc/self/exe", os.Args[1:]...)
	keeper.Args[0] = keeperName
	keeper.Env = append(os.Environ(), roleVariable+"=keeper")
	keeper.Stdout, keeper.Stderr = os.Stdout, os.Stderr
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := keeper.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := keeper.Start(); err != nil {
		return 0, err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		alive.Close()
	}()
	err = keeper.Wait()
	if ended, is := errors.AsType[*exec.ExitError](err); is && ended.Exited() {
		return ended.ExitCode(), nil
	}
	return 0, err
}

// keeper is the process that outlives the tests.
type keeper struct {
	dir    string
	groups map[string]bool // cgroups at the top that processes of the tests were in
}

// keep is what the keeper does.
func keep(prepare func() error) (code int, err error) {
	runtime.LockOSThread() // the parent of a process is a thread, see PR_SET_PDEATHSIG(2const)
	ctx, abandon := context.WithCancel(context.Background())
	defer abandon()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		abandon()
	}()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader that has ended must not end the keeper
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, becomeSubreaper, 1, 0); errno != 0 {
		return 0, fmt.Errorf("become the parent of orphans: %w", errno)
	}
	k := keeper{groups: map[string]bool{}}
	if k.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return 0, err
	}
	err = errors.Join(os.Chmod(k.dir, 0o755), os.Setenv(dirVariable, k.dir))
	if err == nil && prepare != nil {
		spare := context.AfterFunc(ctx, endChildren)
		err = prepare()
		spare()
	}
	if err == nil {
		code, err = k.runTests(ctx)
	}
	return code, errors.Join(err, sweep(k.traces), os.RemoveAll(k.dir))
}

// runTests runs the tests until they have ended or ctx has. Tests that have passed or
// failed leave nothing behind.
func (k *keeper) runTests(ctx context.Context) (code int, err error) {
	temporary := filepath.Join(k.dir, "tmp")
	if err := errors.Join(os.Mkdir(temporary, 0o700), os.Chmod(temporary, 0o777|os.ModeSticky)); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	tests, err := os.StartProcess(self, append([]string{self}, os.Args[1:]...), &os.ProcAttr{
		Env:   append(os.Environ(), roleVariable+"=tests", "TMPDIR="+temporary),
		Files: []*os.File{nil, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, err
	}
	spare := context.AfterFunc(ctx, func() { _ = syscall.Kill(tests.Pid, syscall.SIGKILL) })
	status, err := reapUntil(tests.Pid)
	spare()
	if err != nil {
		return 0, err
	}
	if status.Signaled() {
		return 1, fmt.Errorf("the tests were ended by signal %d, %v", status.Signal(), status.Signal())
	}
	const failed = 1 // exit code of tests that have failed; one that panics exits with 2
	if code = status.ExitStatus(); code <= failed {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(Patience); len(k.processes()) > 0 && time.Now().Before(deadline) && ctx.Err() == nil; {
			<-tick.C
		}
	}
	for _, left := range k.traces() {
		fmt.Fprintln(os.Stderr, "left behind:", left.what)
		code = max(code, failed)
	}
	return code, nil
}

// reapUntil waits for children until a certain one has ended.
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

// endChildren ends all descendants, so that what waits for them fails.
func endChildren() {
	k := keeper{groups: map[string]bool{}}
	for _, process := range k.processes() {
		_ = process.remove() // it has ended meanwhile
	}
}

// traces are what is left of the tests.
func (k *keeper) traces() []trace {
	found := append(k.processes(), traces(k.dir)...)
	mounts := mountTable()
	for group := range k.groups {
		found = append(found, cgroups(group, mounts)...)
	}
	return found
}

// processes are the descendants of the keeper. A keeper among them ends its own
// descendants and then itself.
func (k *keeper) processes() (found []trace) {
	for {
		if ended, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); ended <= 0 && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		text, _ := os.ReadFile(file) // empty once the process is reaped
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[0] != "Z" {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	own := topGroups(os.Getpid())
	for below := children[os.Getpid()]; len(below) > 0; below = below[1:] {
		pid := below[0]
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		words := strings.Split(string(line), "\x00")
		remove := func() error { return end(pid) }
		if words[0] == keeperName {
			remove = func() error { return nil }
		} else {
			below = append(below, children[pid]...)
			for _, group := range topGroups(pid) {
				if strings.HasPrefix(group, "/evictd-") && !slices.Contains(own, group) {
					k.groups[group] = true
				}
			}
		}
		found = append(found, trace{fmt.Sprintf("process %d, %s", pid, strings.Join(words, " ")), remove})
	}
	return found
}

// topGroups are the first elements of the cgroups of a process, see cgroups(7).
func topGroups(pid int) (groups []string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 {
			top, _, _ := strings.Cut(strings.TrimPrefix(fields[2], "/"), "/")
			groups = append(groups, "/"+top)
		}
	}
	return groups
}
