package console

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Launcher starts children. Each dies with the thread that started it
// (PR_SET_PDEATHSIG), so all are started on one, which lasts until Close.
type Launcher struct {
	requests chan func()
	closed   chan struct{}
}

// NewLauncher returns a launcher, which is to be closed after the end of the
// last child.
func NewLauncher() *Launcher {
	l := &Launcher{requests: make(chan func()), closed: make(chan struct{})}
	go func() {
		defer close(l.closed)
		runtime.LockOSThread() // never unlocked: the thread ends here too
		for start := range l.requests {
			start()
		}
	}()
	return l
}

// Close ends the thread; what still runs is killed by that.
func (l *Launcher) Close() {
	close(l.requests)
	<-l.closed
}

// Process is a child. It leads a session of its own, so that a ^C at the terminal
// is for the playground alone, and it dies with the playground.
type Process struct {
	process *os.Process
	cancel  context.CancelFunc
	ended   chan struct{}
	at      time.Time
	state   *os.ProcessState
}

// Start runs a program until it ends, or ctx does. prepare may change the command
// before.
func (l *Launcher) Start(ctx context.Context, prepare func(*exec.Cmd) error, name string, args ...string) (*Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{cancel: cancel, ended: make(chan struct{})}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	err := prepare(cmd)
	if err == nil {
		started := make(chan error)
		l.requests <- func() { started <- cmd.Start() }
		err = <-started
	}
	if err != nil {
		cancel()
		return nil, err
	}
	p.process = cmd.Process
	go func() {
		_ = cmd.Wait() // what became of it is in its state
		p.at, p.state = time.Now(), cmd.ProcessState
		cancel()
		close(p.ended)
	}()
	return p, nil
}

// PID is the process id, which may be another's once the process has ended.
func (p *Process) PID() int { return p.process.Pid }

// Ended is closed at the end of the process.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// End is when and how the process ended. It waits for that.
func (p *Process) End() (time.Time, *os.ProcessState) {
	<-p.ended
	return p.at, p.state
}

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Signal sends the process a signal; os.ErrProcessDone where it has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.process.Signal(s) }

// Stop cancels the process and waits for its end.
func (p *Process) Stop() {
	p.cancel()
	<-p.ended
}
