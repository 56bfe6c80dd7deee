package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

func TestALeakEndsByItselfAtItsCap(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(filepath.Join(built, "evictd-playground"), "pod", "--hold", "4Mi", "--leak", "100Mi", "--cap", "8Mi")
	commands, err1 := cmd.StdinPipe()
	replies, err2 := cmd.StdoutPipe()
	require.NoError(t, errors.Join(err1, err2, cmd.Start()))
	defer cmd.Process.Kill()
	_, err1 = commands.Write([]byte{'\n'})
	_, err2 = io.ReadFull(replies, make([]byte, 1))
	held, err3 := resident(cmd.Process.Pid)
	require.NoError(t, errors.Join(err1, err2, err3, cmd.Process.Signal(syscall.SIGUSR1)))
	taken := int64(0)
	look := func() {
		now, err := resident(cmd.Process.Pid)
		require.NoError(t, err)
		taken = max(taken, now-held)
	}
	wait.Until(t, "the leak", func() bool {
		look()
		return taken >= 7*console.MiB
	})
	// As long again as the whole leak takes at least, in which it takes no more.
	again := time.After(80 * time.Millisecond)
	for over := false; !over; look() {
		select {
		case <-again:
			over = true
		case <-time.After(time.Millisecond):
		}
	}
	commands.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if taken < 7*console.MiB || taken > 10*console.MiB {
		t.Errorf("it took %s, want 8Mi", console.Size(taken))
	}
}

// resident is what a process has for itself, bytes (proc_pid_statm(5), pages).
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident, shared int64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil {
		return 0, err
	}
	return (resident - shared) * int64(os.Getpagesize()), nil
}

func TestATerminatedPodFinishesWhatItDoes(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(filepath.Join(built, "evictd-playground"), "pod", "--farewell", "50ms")
	commands, err1 := cmd.StdinPipe()
	replies, err2 := cmd.StdoutPipe()
	require.NoError(t, errors.Join(err1, err2, cmd.Start()))
	defer commands.Close()
	_, err1 = commands.Write([]byte{'\n'})
	_, err2 = io.ReadFull(replies, make([]byte, 1))
	if err := errors.Join(err1, err2, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		t.Error(err)
	}
}
