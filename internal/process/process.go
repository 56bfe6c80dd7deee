// Package process runs programs as children: each leads a session and is killed with
// its parent. A service is a program that writes a log and serves a status address on a
// unix socket.
package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// starter is the thread that starts all children, and lasts as long as this process:
// the kernel sends a child its parent death signal when the thread that started it
// ends (PR_SET_PDEATHSIG, prctl(2)).
var starter = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// Process is a child.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once cmd is reaped
	at    time.Time
}

// Spawn starts a child that is killed when this process ends. It stays in the session
// of this process unless cmd says otherwise. The caller waits for it, or nothing does.
func Spawn(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return nil
}

// Start starts a child, which leads a session of its own and is killed when this
// process ends. The child's parent reaps it.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	if err := Spawn(cmd); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state says how it ended
		p.at = time.Now()
		close(p.ended)
	}()
	return p, nil
}

// Name is that of the program.
func (p *Process) Name() string { return filepath.Base(p.cmd.Path) }

// PID is the process id. After the end of the process the kernel may give it to
// another.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed at the end of the process.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// End waits for the end of the process and returns when and how it ended.
func (p *Process) End() (time.Time, *os.ProcessState) {
	<-p.ended
	return p.at, p.cmd.ProcessState
}

// Signal sends the process a signal; the error is os.ErrProcessDone after its end.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill sends the process SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // fails after its end
	<-p.ended
}

// Stop sends the process SIGTERM and waits for its end. It kills the process when ctx
// ends before. The error is nil only where the exit code is 0.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.Signal(syscall.SIGTERM) // fails after its end
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill()
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s did not end in order: %v", p.Name(), p.cmd.ProcessState)
	}
	return nil
}
