// Package uml runs commands in user-mode Linux: a kernel with cgroup v2 that is a process of
// this host, boots in seconds, runs programs at the host's speed and needs no privileges
// (Documentation/virt/uml in the kernel's sources).
//
// The command sees the host's files. What it writes goes to a disk of its own, which is removed
// with the kernel: nothing of the host changes.
package uml

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evictd/evictd/internal/process"
)

// Command is what a kernel runs.
type Command struct {
	Args   []string  // the program, an absolute path, and its arguments
	Dir    string    // working directory; empty for /
	Env    []string  // NAME=VALUE, beside those of this process
	Output io.Writer // receives standard output and standard error

	// Systemd has systemd as init process, and the command as its service.
	Systemd bool
}

// Kernel is a user-mode kernel.
type Kernel struct {
	Program string // path of the kernel
	Modules string // directory of its modules; empty if everything is built in
}

// Machine is how a kernel is run.
type Machine struct {
	Kernel
	Processors int           // 0 is 1; more need Linux 6.19 or later
	Memory     int           // MiB; 0 is 1024
	Limit      time.Duration // the kernel is killed after this time; 0 is half an hour
}

// hostname is the machine's.
const hostname = "machine"

// diskSize is the size of the disk in bytes. Its file is sparse.
const diskSize = 8 << 30

// Unavailable is the error if this machine has no user-mode kernel.
type Unavailable string

func (u Unavailable) Error() string { return string(u) }

// Run boots the kernel, runs the command and returns its exit status, -1 if a signal ended it.
// The program that calls Run must call Main first: it becomes the init process of the kernel.
// If the kernel does not come as far as an exit status, the error has the end of its console.
func (m Machine) Run(ctx context.Context, c Command) (status int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(m.Limit, 30*time.Minute), fmt.Errorf("it did not end within %v", cmp.Or(m.Limit, 30*time.Minute)))
	defer cancel()
	dir, err := os.MkdirTemp("", "evictd-uml-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := m.prepare(ctx, dir, c); err != nil {
		return 0, err
	}
	var console tail
	var answer bytes.Buffer
	if err := m.boot(ctx, dir, &console, cmp.Or[io.Writer](c.Output, io.Discard), &answer); err != nil {
		return 0, fmt.Errorf("%s: %w; the end of its console:\n%s", m.Program, err, console.String())
	}
	text, ended := strings.CutPrefix(strings.TrimSpace(answer.String()), "exit ")
	if status, err = strconv.Atoi(text); !ended || err != nil {
		return 0, fmt.Errorf("%s ended before the command did: %s; the end of its console:\n%s", m.Program, answer.String(), console.String())
	}
	return status, nil
}

// prepare makes the disk and the file from which init learns what to do.
func (m Machine) prepare(ctx context.Context, dir string, c Command) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o := orders{Args: c.Args, Dir: c.Dir, Env: append(os.Environ(), c.Env...), Systemd: c.Systemd, Init: self, Modules: m.Modules}
	text, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "orders"), text, 0o600)
	}
	if err != nil {
		return err
	}
	disk := filepath.Join(dir, "disk")
	err = os.WriteFile(disk, nil, 0o600)
	if err == nil {
		err = os.Truncate(disk, diskSize)
	}
	if err != nil {
		return err
	}
	mke2fs := exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1", disk)
	mke2fs.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := mke2fs.CombinedOutput(); err != nil {
		return fmt.Errorf("make the disk of the kernel: %w: %s", err, out)
	}
	return nil
}

// boot runs the kernel to its end. Its serial lines are pipes: ttyS0 has the command's output,
// ttyS1 what init answers.
func (m Machine) boot(ctx context.Context, dir string, console, output, answer io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	kernel := exec.Command(m.Program,
		"mem="+strconv.Itoa(cmp.Or(m.Memory, 1024))+"M", "ncpus="+strconv.Itoa(cmp.Or(m.Processors, 1)), "seccomp=auto",
		"rootfstype=hostfs", "rootflags=/", "ro", "init="+self, dirVariable+"="+dir,
		"ubd0="+filepath.Join(dir, "disk"), "uml_dir="+dir, "umid=kernel",
		"con=null", "con0=null,fd:1", "ssl=null", "ssl0=null,fd:3", "ssl1=null,fd:4",
		"quiet", "panic=-1", "psi=1", "hostname="+hostname)
	kernel.Env = append(os.Environ(), "TMPDIR="+cmp.Or(memoryDir(), dir))
	kernel.Stdout, kernel.Stderr = console, console
	if os.Geteuid() == 0 { // its helpers end with it, however it ends
		kernel.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}
	var readers sync.WaitGroup
	var ends []*os.File
	for _, to := range []io.Writer{output, answer} {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		kernel.ExtraFiles, ends = append(kernel.ExtraFiles, write), append(ends, read)
		readers.Go(func() { _, _ = io.Copy(to, read) })
	}
	p, err := process.Start(kernel)
	for _, write := range kernel.ExtraFiles {
		write.Close()
	}
	if err == nil {
		err = m.await(ctx, p)
	}
	readers.Wait()
	for _, read := range ends {
		read.Close()
	}
	return err
}

// await waits for the end of the kernel, and kills it with all its helpers when ctx ends.
func (m Machine) await(ctx context.Context, p *process.Process) error {
	select {
	case <-p.Ended():
		return nil
	case <-ctx.Done():
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // it leads a session, and its helpers are in its group
		<-p.Ended()
		return context.Cause(ctx)
	}
}

// memoryDir is where the kernel keeps its memory, an unlinked file; empty if there is no tmpfs.
func memoryDir() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > 2*tailSize {
		t.text = append(t.text[:0], t.text[len(t.text)-tailSize:]...)
	}
	return len(p), nil
}

// String is the end of the text in whole lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.text
	if len(text) > tailSize {
		_, text, _ = bytes.Cut(text[len(text)-tailSize:], []byte("\n"))
	}
	return string(text)
}

// Find returns the kernel that `make uml` has built, else Debian's. The error is Unavailable
// if there is neither.
func Find() (Kernel, error) {
	if built, err := Built(); err == nil {
		return built, nil
	}
	return Debian()
}

// Debian returns the kernel of Debian's package user-mode-linux.
func Debian() (Kernel, error) {
	program, err := exec.LookPath("linux.uml")
	if err != nil {
		return Kernel{}, Unavailable("no user-mode kernel: Debian's package user-mode-linux has one, and make uml builds another")
	}
	modules, err := filepath.Glob("/usr/lib/uml/modules/*")
	if err != nil || len(modules) != 1 {
		return Kernel{}, Unavailable(fmt.Sprintf("the modules of the user-mode kernel: expected one directory in /usr/lib/uml/modules, found %d", len(modules)))
	}
	return Kernel{Program: program, Modules: modules[0]}, nil
}

// Built returns the kernel that `make uml` has built in the user's cache. The error is
// Unavailable if it has not.
func Built() (Kernel, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Kernel{}, Unavailable(err.Error())
	}
	program := filepath.Join(cache, "evictd-uml", "linux")
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		return Kernel{}, Unavailable("no user-mode kernel has been built: make uml builds one")
	}
	return Kernel{Program: program}, nil
}
