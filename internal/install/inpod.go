package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/stats"
)

// inPod runs evictd on a host without systemd: as a child of this process, with the root
// directory of the host and in a cgroup beside that of the pods, with the limits of
// evictd.service. The kernel kills it when this process ends. Any goroutine may use it.
type inPod struct {
	root    string
	command []string // on the host
	output  io.Writer
	log     *slog.Logger
	cgroups *cgroup.System
	client  *http.Client // of evictd's status

	mu      sync.Mutex
	stopped func()        // nil where evictd was not started
	ended   chan struct{} // closed when evictd and its restarts have ended
	refused error         // of evictd's last start, which another one does not mend
}

// refusedError says why evictd refuses to run as it is configured. The installer ends with the exit code
// of evictd, so that the status of the container has both; the kubelet starts it again.
type refusedError struct{ line string }

func (e *refusedError) Error() string {
	return fmt.Sprintf("evictd has ended with exit code %d: %s", cli.ExitBadInput, e.line)
}

// podCgroup is the cgroup of evictd in every hierarchy.
const podCgroup = "/evictd"

// The times of evictd.service.
const (
	restartPause = 100 * time.Millisecond
	stopTimeout  = 10 * time.Second
)

// newInPod finds the cgroups of the host. The error says what the pod lacks.
func newInPod(root string, command []string, output io.Writer, log *slog.Logger) (*inPod, error) {
	cgroups, err := cgroup.Discover("")
	if err != nil {
		return nil, err
	}
	return &inPod{root: root, command: command, output: output, log: log, cgroups: cgroups, client: statusClient(root)}, nil
}

func (p *inPod) close() {}

// take starts evictd, or again with new files.
func (p *inPod) take(ctx context.Context) error {
	if err := p.stop(ctx); err != nil {
		return err
	}
	limits := cgroup.Limits{Memory: stats.Known(256 << 20), PIDs: stats.Known(128), CPUShares: stats.Known(262_144)}
	if err := p.cgroups.Create(podCgroup, limits); err != nil {
		return fmt.Errorf("evictd needs a cgroup outside that of its pod, in a pod that is privileged: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	running, stop := context.WithCancel(context.Background())
	p.stopped, p.ended, p.refused = stop, make(chan struct{}), nil
	go p.run(running, p.ended)
	return nil
}

// started says whether take was called and stop was not.
func (p *inPod) started() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped != nil
}

// run restarts evictd until ctx ends.
func (p *inPod) run(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	for {
		line := lastLine{to: p.output}
		err := p.once(ctx, &line)
		if ctx.Err() != nil {
			return
		}
		p.log.Error("evictd has ended", "error", err)
		if exit, is := errors.AsType[*exec.ExitError](err); is && exit.ExitCode() == cli.ExitBadInput {
			p.mu.Lock()
			p.refused = &refusedError{line.String()}
			p.mu.Unlock()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(restartPause):
		}
	}
}

// once runs evictd until it ends, which the end of ctx asks for, and has it restore the cgroup
// settings that it has changed.
func (p *inPod) once(ctx context.Context, output io.Writer) error {
	c := p.child(ctx, output, append([]string{"/proc/self/exe", EnterCommand, p.root}, p.command...)...)
	c.SysProcAttr.Chroot = "" // Enter changes it
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = stopTimeout
	if err := process.Spawn(c); err != nil {
		return err
	}
	err := c.Wait()
	result := "success"
	if c.ProcessState.Sys().(syscall.WaitStatus).Signaled() && ctx.Err() == nil {
		result = "signal"
	}
	undone, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	undo := p.child(undone, p.output, p.command[0], "undo", "--service-result="+result)
	return errors.Join(err, undo.Run())
}

// EnterCommand is the command of this program that calls Enter.
const EnterCommand = "enter"

// Enter moves this process into the cgroup of evictd, below another root directory, and executes a program there. It returns
// after an error only. A program that is moved after its start has begun threads, processes and memory in the cgroup of
// the pod, and has read where it is.
func Enter(root string, command []string) error {
	cgroups, err := cgroup.Discover("")
	if err == nil {
		err = cgroups.Add(podCgroup, os.Getpid())
	}
	if err == nil {
		err = syscall.Chroot(root)
	}
	if err == nil {
		err = os.Chdir("/")
	}
	if err == nil {
		// PR_SET_PDEATHSIG of process.Spawn is a setting of the first thread, and the program has that of the
		// thread that executes it.
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0); errno != 0 {
			err = errno
		}
	}
	if err == nil {
		err = syscall.Exec(command[0], command, os.Environ())
	}
	return fmt.Errorf("execute %s in cgroup %s: %w", command[0], podCgroup, err)
}

// child is a program of the host.
func (p *inPod) child(ctx context.Context, output io.Writer, command ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Dir, c.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GOTRACEBACK=crash"}
	c.Stdout, c.Stderr = output, output
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root}
	return c
}

// lastLine passes on what is written and keeps the last line of it, at most maxLine bytes.
type lastLine struct {
	to   io.Writer
	text []byte
}

const maxLine = 4096

func (l *lastLine) Write(text []byte) (int, error) {
	l.text = append(l.text, text...)
	whole := bytes.TrimRight(l.text, "\n")
	if at := bytes.LastIndexByte(whole, '\n'); at >= 0 {
		l.text = l.text[at+1:]
	}
	l.text = l.text[:min(len(l.text), maxLine)]
	return l.to.Write(text)
}

func (l *lastLine) String() string { return strings.TrimSpace(string(l.text)) }

// state is active while evictd is ready.
func (p *inPod) state(ctx context.Context) (string, error) {
	p.mu.Lock()
	refused := p.refused
	p.mu.Unlock()
	if refused != nil {
		return "", refused
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if why, err := process.Get(ctx, p.client, ready); err != nil {
		return "evictd is not ready: " + cmp.Or(strings.TrimSpace(string(why)), err.Error()), nil
	}
	return active, nil
}

// stop ends evictd, if it runs.
func (p *inPod) stop(context.Context) error {
	p.mu.Lock()
	stop, ended := p.stopped, p.ended
	p.stopped = nil
	p.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	return nil
}

// forget removes the cgroup.
func (p *inPod) forget(context.Context) error { return p.cgroups.Delete(podCgroup) }
