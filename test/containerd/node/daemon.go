package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evictd/evictd/internal/require"
)

// daemon is the process of containerd.
type daemon struct {
	programs programs
	process  *os.Process
	ended    chan struct{} // closed once the process is reaped
}

// Pid is the process id of containerd, new after every Restart.
func (n *Node) Pid() int { return n.daemon.process.Pid }

// Restart starts containerd, which Kill ended, and returns once it is ready.
func (n *Node) Restart() {
	n.t.Helper()
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	require.NoError(n.t, err)
	defer log.Close()
	containerd := exec.Command(n.daemon.programs.containerd, "-c", n.config())
	containerd.Stdout, containerd.Stderr = log, log
	// containerd looks for its shim, and that for runc's helpers, in PATH.
	containerd.Env = append(os.Environ(), "PATH="+filepath.Dir(n.daemon.programs.shim)+":/usr/sbin:/usr/bin:/sbin:/bin")
	containerd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(n.t, containerd.Start())
	n.daemon.process, n.daemon.ended = containerd.Process, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		_ = containerd.Wait() // it is killed
	}(n.daemon.ended)
	Await(n.t, "containerd to be ready", func() bool {
		select {
		case <-n.daemon.ended:
			n.stop()
			n.t.Fatal("containerd ended by itself")
		default:
		}
		return n.ready()
	})
}

// Kill ends containerd with SIGKILL and returns when it is gone.
func (n *Node) Kill() {
	_ = n.daemon.process.Kill() // fails where it has ended
	<-n.daemon.ended
}

// Freeze stops containerd with SIGSTOP and returns when all of it has stopped: it
// takes calls, and answers none.
func (n *Node) Freeze() {
	n.t.Helper()
	n.signal(syscall.SIGSTOP)
	Await(n.t, "containerd to be stopped", func() bool { return strings.HasPrefix(n.state(), "T") })
}

// Thaw continues a stopped containerd.
func (n *Node) Thaw() {
	n.t.Helper()
	n.signal(syscall.SIGCONT)
}

func (n *Node) signal(signal syscall.Signal) {
	n.t.Helper()
	require.NoError(n.t, n.daemon.process.Signal(signal))
}

// state is the third field of /proc/PID/stat, see proc_pid_stat(5).
func (n *Node) state() string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.Pid()))
	return strings.TrimSpace(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}
