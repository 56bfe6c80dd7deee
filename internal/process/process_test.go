package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// childVariable says what this test binary is when a test starts it.
const childVariable = "EVICTD_PROCESS_TEST"

func TestMain(m *testing.M) {
	switch socket, serves := strings.CutPrefix(os.Getenv(childVariable), "serve "); {
	case serves:
		serve(socket)
	case os.Getenv(childVariable) == "parent":
		parent()
	}
	os.Exit(m.Run())
}

func serve(socket string) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, "serving")
	panic(http.Serve(listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
}

// parent starts a child each way, prints their ids, and does not end.
func parent() {
	started, err := process.Start(exec.Command("sleep", "infinity"))
	if err != nil {
		panic(err)
	}
	spawned := exec.Command("sleep", "infinity")
	if err := process.Spawn(spawned); err != nil {
		panic(err)
	}
	fmt.Println(started.PID(), spawned.Process.Pid)
	select {}
}

func as(what string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+what)
	return cmd
}

// start runs a line of sh and returns once it has printed a line.
func start(t *testing.T, line string) *process.Process {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	_, err1 := cmd.StdinPipe() // nothing is written to it
	out, err2 := cmd.StdoutPipe()
	require.NoError(t, errors.Join(err1, err2))
	p, err := process.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	if !bufio.NewScanner(out).Scan() {
		t.Fatalf("%s ends at once", line)
	}
	return p
}

// runs says whether a process has not ended, whether or not its parent has reaped it.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

func session(t *testing.T, pid int) int {
	t.Helper()
	id, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	return int(id)
}

func TestChildrenAreKilledWithTheirParent(t *testing.T) {
	cmd := as("parent")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	p, err := process.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	var started, spawned int
	if _, err := fmt.Fscan(out, &started, &spawned); err != nil {
		t.Fatal(err)
	}
	if got := session(t, started); got != started {
		t.Errorf("a started child is in session %d, want its own", got)
	}
	if got := session(t, spawned); got != p.PID() {
		t.Errorf("a spawned child is in session %d, want that of its parent, %d", got, p.PID())
	}
	p.Kill()
	wait.Until(t, "the children to end", func() bool { return !runs(started) && !runs(spawned) })
}

func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	type result struct {
		p   *process.Process
		err error
	}
	started, thread := make(chan result), make(chan int, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		thread <- syscall.Gettid()
		p, err := process.Start(exec.Command("sleep", "infinity"))
		started <- result{p, err}
	}()
	r := <-started
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(r.p.Kill)
	asked := <-thread
	wait.Until(t, "the thread to end", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", asked))
		return err != nil || asked == os.Getpid() // the first thread does not end
	})
	if !r.p.Running() || !runs(r.p.PID()) {
		t.Error("the child has ended with the thread")
	}
}

func TestProgramThatIsMissingIsAnError(t *testing.T) {
	if _, err := process.Start(exec.Command("/none/such")); err == nil || !strings.Contains(err.Error(), "start such: ") {
		t.Errorf("got %v", err)
	}
}

func TestStopSendsSIGTERMAndReturnsHowTheProcessEnds(t *testing.T) {
	for line, want := range map[string]string{
		"trap 'exit 0' TERM; echo; read line": "",
		"trap 'exit 3' TERM; echo; read line": "sh did not end in order: exit status 3",
		"echo; read line":                     "sh did not end in order: signal: terminated",
	} {
		p := start(t, line)
		err := p.Stop(t.Context())
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
		if p.Running() {
			t.Errorf("%s: still runs", line)
		}
	}
}

func TestStopKillsWhatHasNotEndedInTime(t *testing.T) {
	p := start(t, "trap '' TERM; echo; exec sleep infinity")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Stop(ctx); err == nil || err.Error() != "sh did not end in order: signal: killed" {
		t.Errorf("got %v", err)
	}
	if at, state := p.End(); at.IsZero() || state.Success() {
		t.Errorf("ended at %v by %v", at, state)
	}
	if err := p.Signal(syscall.SIGTERM); err == nil {
		t.Error("a process that has ended gets signals")
	}
}

func TestServiceIsReadyOnceItServes(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	s, err := process.Serve(dir, socket, as("serve "+socket))
	require.NoError(t, err)
	t.Cleanup(s.Kill)
	require.NoError(t, s.Ready(t.Context()))
	if s.Log() != "serving\n" {
		t.Errorf("log %q", s.Log())
	}
}

func TestServiceThatEndsOrIsLateIsNotReady(t *testing.T) {
	dir := t.TempDir()
	ends, err := process.Serve(dir, dir+"/none", exec.Command("sh", "-c", "echo fault >&2; exit 3"))
	require.NoError(t, err)
	if err := ends.Ready(t.Context()); err == nil || err.Error() != "sh ended before it was ready: exit status 3" || ends.Log() != "fault\n" {
		t.Errorf("got %v, log %q", err, ends.Log())
	}
	late, err := process.Serve(dir, dir+"/none", exec.Command("sleep", "infinity"))
	require.NoError(t, err)
	t.Cleanup(late.Kill)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := late.Ready(ctx); err == nil || !strings.HasPrefix(err.Error(), "sleep is not ready: ") {
		t.Errorf("got %v", err)
	}
}
