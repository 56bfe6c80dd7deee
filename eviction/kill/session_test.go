package kill

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

func startSession(t testing.TB, script string) *Session {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	startReady(t, cmd)
	s, err := NewSession("/proc", cmd.Process.Pid)
	require.NoError(t, err)
	t.Cleanup(func() {
		pids, _ := s.AppendProcesses(nil)
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		s.Close()
	})
	return s
}

func TestASessionDiesWithThoseThatLeftIt(t *testing.T) {
	s := startSession(t, `trap '' TERM; sleep 600 & setsid sh -c 'echo ready; exec sleep 600' & wait; sleep 600`)
	if pids, err := s.AppendProcesses(nil); err != nil || len(pids) != 3 {
		t.Fatalf("session holds %v, %v; want the shell and two sleepers", pids, err)
	}
	mustKill(t, startKiller(t), Victim{UID: "a", Grace: 100 * time.Millisecond, Target: s})
}

func TestASessionWhoseLeaderEndedStillHoldsItsOrphans(t *testing.T) {
	s := startSession(t, `sleep 600 & echo ready; exec sleep 600`)
	unix.Kill(s.leader, unix.SIGKILL)
	leader, err := openPidfd(s.leader)
	if err == nil {
		<-leader.gone()
		leader.close()
	}
	if pids, err := s.AppendProcesses(nil); err != nil || len(pids) != 1 {
		t.Fatalf("session holds %v, %v; want the orphan", pids, err)
	}
	mustKill(t, startKiller(t), Victim{UID: "a", Target: s})
}

func TestASessionIsThatOfALeader(t *testing.T) {
	if _, err := NewSession("/proc", 1<<22+1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("session of no process: %v, want not exist", err)
	}
	cmd := startReady(t, exec.Command("/bin/sh", "-c", "echo ready; exec sleep 600"))
	if _, err := NewSession("/proc", cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "leads no session") {
		t.Errorf("session of a process that leads none: %v", err)
	}
}

// fakeProc writes a procfs of "pid parent session start state" lines.
func fakeProc(t *testing.T, dir string, processes ...string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir))
	for _, process := range processes {
		var pid, parent, session, started int
		var state string
		if _, err := fmt.Sscan(process, &pid, &parent, &session, &started, &state); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%d (a) S 1 (b)) %s %d 1 %d %s %d 0\n", pid, state, parent, session, strings.Repeat("0 ", 14)+"0", started)
		path := filepath.Join(dir, strconv.Itoa(pid), "stat")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(line), 0o644))
	}
}

func TestASessionIDThatIsUsedAgainIsAnotherProcess(t *testing.T) {
	parent := t.TempDir()
	proc := filepath.Join(parent, "proc")
	const boot, leader = "1 0 1 0 S", "50 1 50 500 S"
	fakeProc(t, proc, boot, leader, "51 50 50 501 S", "52 51 52 502 S", "53 50 50 503 Z", "60 1 60 400 S")
	s, err := NewSession(proc, 50)
	require.NoError(t, err)
	defer s.Close()
	list := func(want string) {
		t.Helper()
		pids, err := s.AppendProcesses(nil)
		if got := fmt.Sprint(sorted(pids)); err != nil || got != want {
			t.Errorf("session holds %s, %v; want %s", got, err, want)
		}
	}
	list("[50 51 52]")
	// Inside the same directory, for the session keeps procfs open.
	for _, pid := range []string{"50", "51", "53"} {
		os.RemoveAll(filepath.Join(proc, pid))
	}
	list("[52]")
	write := func(processes ...string) {
		t.Helper()
		next := filepath.Join(parent, "next")
		fakeProc(t, next, processes...)
		for _, process := range processes {
			pid, _, _ := strings.Cut(process, " ")
			os.RemoveAll(filepath.Join(proc, pid))
			require.NoError(t, os.Rename(filepath.Join(next, pid), filepath.Join(proc, pid)))
		}
	}
	write("50 1 50 900 S", "52 50 50 901 S", "54 50 50 902 S")
	list("[]")
}
