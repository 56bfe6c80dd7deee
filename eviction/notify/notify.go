// Package notify delivers notices to processes of containers. A container chooses what is written
// where, so nothing here follows a link of the container's, opens a device, ends a process that did
// not ask for it, or writes what the container's user may not write.
package notify

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is a process of a container, by a pidfd: it stays the same one when its id is
// used again. Use it from one goroutine.
type Process struct {
	pid, fd int
}

// Open opens a process. isMember says, after that, whether the id is in the container: it may have been used
// again since it was listed. The error is os.ErrProcessDone if it is not.
func Open(pid int, isMember func() bool) (*Process, error) {
	if pid == os.Getpid() {
		return nil, errors.New("it is evictd's own process")
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, os.ErrProcessDone
	case err != nil:
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	p := &Process{pid, fd}
	if !isMember() {
		p.Close()
		return nil, os.ErrProcessDone
	}
	return p, nil
}

// Close closes the pidfd.
func (p *Process) Close() { unix.Close(p.fd) }

// runs says whether the process has not been reaped: what was read of its id is of it then.
func (p *Process) runs() error { return p.send(0) }

func (p *Process) send(sig unix.Signal) error {
	err := unix.PidfdSendSignal(p.fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return os.NewSyscallError("pidfd_send_signal", err)
}

// ErrNotCaught says that the process has no handler for the signal.
var ErrNotCaught = errors.New("the first process of the container does not catch the signal")

// Signal sends a signal to a process that catches it (SigCgt of proc_pid_status(5)), other than
// SIGKILL, SIGSTOP and SIGTERM.
func (p *Process) Signal(number int) error {
	sig := unix.Signal(number)
	if sig == unix.SIGKILL || sig == unix.SIGSTOP || sig == unix.SIGTERM {
		return fmt.Errorf("signal %d is not for notices", number)
	}
	caught, err := p.status("SigCgt", 16)
	if err != nil {
		return err
	}
	if caught[0]&(1<<(number-1)) == 0 {
		return ErrNotCaught
	}
	return p.send(sig)
}

// status reads the numbers of a line of the process's status.
func (p *Process) status(line string, base int) (numbers []uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err := p.runs(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	for l := range bytes.Lines(text) {
		name, rest, _ := strings.Cut(string(l), ":")
		if name != line {
			continue
		}
		for field := range strings.FieldsSeq(rest) {
			n, err := strconv.ParseUint(field, base, 64)
			if err != nil {
				return nil, fmt.Errorf("read status of process %d: %w", p.pid, err)
			}
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("status of process %d has no %s", p.pid, line)
	}
	return numbers, nil
}
