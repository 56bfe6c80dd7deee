package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
)

// Bits of the capabilities that matter here (linux/capability.h).
const (
	// capDACReadSearch is the one capability of the agent: its credentials
	// rotate on disk and belong to root.
	capDACReadSearch = 2
	capSetGID        = 6
	capSetUID        = 7
)

// endPatience is how long the agent may take to end when its connection is closed, and the
// service manager to accept a connection.
const endPatience = 2 * time.Second

// User is the user that the agent runs as.
type User struct {
	Name     string
	UID, GID uint32
	// ReadAll says that it may read every file.
	ReadAll bool
}

// Unprivileged finds the user for the agent of a daemon with these effective
// capabilities: evictd if there is one, else the user without rights that Linux systems have. It is nil where the daemon
// cannot choose.
func Unprivileged(capabilities uint64) *User {
	has := func(bit int) bool { return capabilities&(1<<bit) != 0 }
	if !has(capSetUID) || !has(capSetGID) {
		return nil
	}
	readAll := has(capDACReadSearch)
	for _, name := range []string{"evictd", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &User{name, uint32(uid), uint32(gid), readAll}
		}
	}
	const overflow = 65534 // the kernel's overflowuid, where no file has a name for it
	return &User{"65534", overflow, overflow, readAll}
}

// String is the user's name.
func (u *User) String() string {
	if u == nil {
		return "the same"
	}
	return u.Name
}

// process is a running agent and the connections to it. Its command is nil where the
// service manager has started it.
type process struct {
	command *exec.Cmd
	conn    *wire.Evictd
	// dials passes connections to the container runtime; nil without a runtime.
	dials *net.UnixConn
}

// start runs an agent that ends when its connection is closed.
func start(cfg *Config) (*process, error) {
	p := &process{}
	line, err := p.launch(cfg)
	if err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	p.conn = wire.NewConn[wire.ToAgent, wire.FromAgent](line, wire.AgentTimeout)
	var theirs *os.File
	if cfg.Runtime != nil {
		if p.dials, theirs, err = socketPair(syscall.SOCK_SEQPACKET); err == nil {
			defer theirs.Close()
		}
	}
	if err == nil {
		err = wire.Begin(line, theirs)
	}
	if err != nil {
		p.end()
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	return p, nil
}

// programFD is the program's descriptor in the agent's process.
const programFD = wire.AgentFD + 1

// command runs the agent's program as the agent's user. line, its connection, may be nil.
func (c *Config) command(line *os.File, arguments ...string) *exec.Cmd {
	command := exec.Command(fmt.Sprintf("/proc/self/fd/%d", programFD), arguments...)
	command.Args[0] = c.Program.Name()
	command.Stderr = os.Stderr
	command.ExtraFiles = []*os.File{line, c.Program}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.User != nil {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID}
		if c.User.ReadAll {
			command.SysProcAttr.AmbientCaps = []uintptr{capDACReadSearch}
		}
	}
	return command
}

// explained names the program, and says what lets the agent's user execute it.
func (c *Config) explained(err error) error {
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	err = fmt.Errorf("execute %s: %w", c.Program.Name(), failed.Err)
	if errors.Is(err, syscall.EACCES) && c.User != nil {
		err = fmt.Errorf("%w: the user %v may not execute it; chmod 755 %s lets every user do so", err, c.User, c.Program.Name())
	}
	return err
}

// Check validates arguments by the agent's program, as the agent's user, and returns its
// standard error. The error is an *exec.ExitError where the program found a fault.
func (c *Config) Check(arguments ...string) (text string, err error) {
	command := c.command(nil, append([]string{"check"}, arguments...)...)
	var errs bytes.Buffer
	command.Stderr = &errs
	if err := confined(command.Start); err != nil {
		return "", c.explained(err)
	}
	err = command.Wait()
	return strings.TrimSpace(errs.String()), err
}

// launch starts the program, or has the service manager start it.
func (p *process) launch(cfg *Config) (*net.UnixConn, error) {
	if cfg.Address != "" {
		line, err := net.DialTimeout("unix", cfg.Address, endPatience)
		if err != nil {
			return nil, err
		}
		return line.(*net.UnixConn), nil
	}
	ours, theirs, err := socketPair(syscall.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	p.command = cfg.command(theirs, cfg.Arguments...)
	if cfg.User != nil {
		p.command.SysProcAttr.Credential.Groups, err = groupOf(cfg.Socket)
	}
	if err == nil {
		err = cfg.explained(confined(p.command.Start))
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// groupOf is the group of a socket, nil for none. It is an error before the embedded API
// has created the socket: the agent is started later.
func groupOf(socket string) ([]uint32, error) {
	if socket == "" {
		return nil, nil
	}
	info, err := os.Stat(socket)
	if err != nil {
		return nil, fmt.Errorf("find the embedded API: %w", err)
	}
	return []uint32{info.Sys().(*syscall.Stat_t).Gid}, nil
}

// confined starts a program that cannot gain privileges: no_new_privs belongs to the thread
// that forks, which ends with its goroutine.
func confined(start func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := osprocess.NoNewPrivileges()
		if err == nil {
			err = start()
		}
		result <- err
	}()
	return <-result
}

func socketPair(kind int) (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, kind|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	mine := os.NewFile(uintptr(fds[0]), "evictd")
	defer mine.Close()
	theirs = os.NewFile(uintptr(fds[1]), "evictd-agent")
	conn, err := net.FileConn(mine)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// end closes the connection and waits until the agent has ended; after endPatience it is
// killed. The service manager waits for an agent that it has started.
func (p *process) end() {
	p.conn.Close()
	if p.dials != nil {
		p.dials.Close()
	}
	if p.command == nil {
		return
	}
	force := time.AfterFunc(endPatience, func() { _ = p.command.Process.Kill() })
	defer force.Stop()
	_ = p.command.Wait()
}
