package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is a child. It leads a session of its own, so that a ^C at the terminal
// is for the playground alone, and it dies with the playground.
type process struct {
	pid    int
	cancel context.CancelFunc
	ended  chan struct{} // closed at its end; then the fields below are set
	at     time.Time
	state  *os.ProcessState
}

// start runs a program until it ends, or ctx does. prepare may change the command
// before. It is called on the main thread only.
func start(ctx context.Context, prepare func(*exec.Cmd) error, name string, args ...string) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &process{cancel: cancel, ended: make(chan struct{})}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	err := prepare(cmd)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	p.pid = cmd.Process.Pid
	go func() {
		_ = cmd.Wait() // what became of it is in its state
		p.at, p.state = time.Now(), cmd.ProcessState
		close(p.ended)
	}()
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end ends the process and waits for that.
func (p *process) end() {
	p.cancel()
	<-p.ended
}
