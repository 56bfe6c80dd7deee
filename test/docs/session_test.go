package docs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/harness"
)

// session is a shell that runs the commands of a page, in a directory and in
// namespaces of its own: what the programs keep in /run and /var/lib is the page's,
// and so is the loopback.
type session struct {
	t       *testing.T
	dir     string
	shell   *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner // the exit code of each command
	ran     int
}

func newSession(t *testing.T) *session {
	t.Helper()
	dir := harness.Dir(t)
	repository, err := filepath.Abs(top)
	require.NoError(t, err)
	for _, folder := range []string{"deploy", "docs"} {
		require.NoError(t, os.Symlink(filepath.Join(repository, folder), filepath.Join(dir, folder)))
	}
	s := &session{t: t, dir: dir, shell: exec.Command("/proc/self/exe")}
	s.shell.Dir = dir
	s.shell.Env = []string{"PATH=" + programs(t) + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8", "TERM=xterm", shellVariable + "=1"}
	s.shell.Stderr = os.Stderr
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	answers, out, err := os.Pipe()
	if err == nil {
		s.shell.ExtraFiles = []*os.File{out}
		s.orders, err = s.shell.StdinPipe()
	}
	if err == nil {
		err = s.shell.Start()
	}
	if errors.Is(err, syscall.EPERM) {
		t.Skip("skipped: namespaces of the page's own cannot be made:", err)
	}
	require.NoError(t, err)
	out.Close()
	s.answers = bufio.NewScanner(answers)
	t.Cleanup(func() {
		s.end()
		answers.Close()
	})
	if output, err := s.run(hide, nil); err != nil {
		t.Fatalf("hide what the host runs and keeps: %v\n%s", err, output)
	}
	return s
}

// hide makes /run and /var/lib the page's own, and a kubelet of the host invisible: the
// pages show a machine without.
const hide = `mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib &&
for status in $(grep -lsx 'Name:[[:space:]]*kubelet' /proc/[0-9]*/status); do mount -t tmpfs tmpfs ${status%/status} || exit; done`

// shellVariable has the test binary become a session's shell.
const shellVariable = "EVICTD_DOCS_SHELL"

// becomeShell brings the loopback of a new network namespace up and becomes the
// shell. It returns only where that fails.
func becomeShell() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("bring the loopback up: %w", err)
	}
	bash, err := exec.LookPath("bash")
	if err == nil {
		err = os.Unsetenv(shellVariable)
	}
	if err != nil {
		return err
	}
	return unix.Exec(bash, []string{"bash", "--norc", "--noprofile"}, os.Environ())
}

// end ends what still runs in the background, and the shell.
func (s *session) end() {
	fmt.Fprintln(s.orders, "kill $(jobs -p) 2>&-; wait")
	s.orders.Close()
	late := time.AfterFunc(wait.Limit, func() {
		s.t.Errorf("what runs in the background did not end within %v", wait.Limit)
		_ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL)
	})
	_ = s.shell.Wait() // with the code of whatever was ended
	late.Stop()
}

var errLate = fmt.Errorf("it did not end within %v", wait.Limit)

// run runs a command and returns what it printed. It waits for the output of a
// command in the background until enough returns true.
func (s *session) run(command string, enough func(string) bool) (printed string, err error) {
	s.ran++
	file := filepath.Join(s.dir, fmt.Sprintf(".%d", s.ran))
	if _, err := fmt.Fprintf(s.orders, "{ %s\n} >%s 2>&1 3>&- </dev/null; echo $? >&3\n", command, file); err != nil {
		return "", fmt.Errorf("the shell has ended: %w", err)
	}
	late := time.AfterFunc(wait.Limit, func() { _ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) })
	answered := s.answers.Scan()
	if !late.Stop() {
		return "", errLate
	}
	if !answered {
		return "", errors.New("it ended the shell")
	}
	if code := s.answers.Text(); code != "0" {
		err = fmt.Errorf("it ended with exit code %s", code)
	}
	var fault error
	await(func() bool {
		var text []byte
		text, fault = os.ReadFile(file)
		printed = trimmed(string(text))
		return !strings.HasSuffix(command, "&") || enough(printed)
	})
	return printed, errors.Join(err, fault)
}

// await waits until a condition holds, or for wait.Limit.
func await(holds func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	_ = wait.That(ctx, holds) // what is shown says whether it holds
}

// try runs a command as its marks say, and says whether it printed what is shown:
// that counts in a session. One that fails is an error unless what it says is
// shown.
func (s *session) try(b *block, c command, shown string) (printed string, right bool, err error) {
	want := pattern(shown, b.figures)
	enough := func(printed string) bool { return !b.session || want.MatchString(printed) }
	once := func(command string) error {
		printed, err = s.run(command, enough)
		right = enough(printed)
		return err
	}
	fails := strings.TrimSpace(shown) != "" // may
	switch {
	case b.terminal:
		err = s.onTerminal(c.text, once, &right)
	case b.untilShown:
		await(func() bool { _ = once(c.text); return right && (err == nil || fails) || errors.Is(err, errLate) })
	default:
		_ = once(c.text)
	}
	if right && fails && !errors.Is(err, errLate) {
		err = nil
	}
	return printed, right, err
}

// onTerminal runs a command in a terminal of its own until that shows what is
// right.
func (s *session) onTerminal(command string, once func(string) error, right *bool) error {
	const tmux = "tmux -S terminal -f /dev/null "
	err := once(tmux + "new-session -d -x 116 -y 20 '" + command + "; cat'") // cat keeps the terminal
	if err == nil {
		await(func() bool { err = once(tmux + "capture-pane -p"); return *right || err != nil })
		_, ended := s.run(tmux+"kill-server", nil)
		err = errors.Join(err, ended)
	}
	return err
}
