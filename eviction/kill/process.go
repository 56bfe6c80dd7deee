package kill

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// process refers to one process, whatever process gets its id later.
type process interface {
	signal(unix.Signal) error // os.ErrProcessDone once it has ended; one goroutine at a time
	release() error           // see pidfd.release
	exited() bool             // one goroutine at a time
	gone() <-chan struct{}    // closed when it has exited or the pidfd is closed
	close()
}

// pidfd is a process by pidfd_open(2). Go's poller watches it, so that waiting for an
// exit blocks no thread.
type pidfd struct {
	file  *os.File
	conn  syscall.RawConn
	ended func() <-chan struct{}
	watch sync.WaitGroup
	// send sends sig and sets sent, and poll sets dead. They are made once: neither allocates.
	send, poll func(fd uintptr)
	sig        unix.Signal
	sent       error
	dead       bool
}

func openPidfd(pid int) (process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", doneOr(err))
	}
	// Go's poller takes only nonblocking files; PIDFD_NONBLOCK needs Linux 5.10.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &pidfd{file: os.NewFile(uintptr(fd), "pidfd")}
	if p.conn, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, err
	}
	p.send = func(fd uintptr) { p.sent = unix.PidfdSendSignal(int(fd), p.sig, nil, 0) }
	p.poll = func(fd uintptr) { p.dead = readable(fd) }
	p.ended = sync.OnceValue(func() <-chan struct{} {
		ended := make(chan struct{})
		p.watch.Go(func() {
			defer close(ended)
			p.conn.Read(readable)
		})
		return ended
	})
	return p, nil
}

// readable: a pidfd is readable once its process is a zombie.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

func (p *pidfd) signal(sig unix.Signal) error {
	p.sig = sig
	if err := p.conn.Control(p.send); err != nil {
		return err
	}
	return os.NewSyscallError("pidfd_send_signal", doneOr(p.sent))
}

// release reclaims the memory of a dying process on the caller's thread and priority,
// by process_mrelease(2) (Linux 5.15). Errors: EAGAIN, the kernel uses the memory;
// EINVAL, a process that is not dying shares it; ENOSYS; EPERM.
func (p *pidfd) release() error {
	return p.control("process_mrelease", func(fd uintptr) error {
		if _, _, errno := unix.Syscall(unix.SYS_PROCESS_MRELEASE, fd, 0, 0); errno != 0 {
			return errno
		}
		return nil
	})
}

func (p *pidfd) control(call string, do func(fd uintptr) error) error {
	var result error
	if err := p.conn.Control(func(fd uintptr) { result = do(fd) }); err != nil {
		return err
	}
	return os.NewSyscallError(call, doneOr(result))
}

func doneOr(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func (p *pidfd) exited() bool {
	err := p.conn.Control(p.poll)
	return err != nil || p.dead
}

func (p *pidfd) gone() <-chan struct{} { return p.ended() }

func (p *pidfd) close() {
	p.file.Close()
	p.watch.Wait()
}
