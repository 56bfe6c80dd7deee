package notify_test

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/eviction/notify"
	"github.com/evictd/evictd/internal/require"
)

// TestMain is the process that is notified where a test starts this program again: it writes each SIGUSR1 it
// gets as a line.
func TestMain(m *testing.M) {
	if os.Getenv("NOTIFIED") == "" {
		os.Exit(m.Run())
	}
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	os.Stdout.WriteString("ready\n")
	for range got {
		os.Stdout.WriteString("SIGUSR1\n")
	}
}

func is() bool { return true }

// child starts a command and opens it.
func child(t *testing.T, c *exec.Cmd) (p *notify.Process, line func() string) {
	t.Helper()
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	line = func() string {
		var b [64]byte
		n, err := out.Read(b[:])
		require.NoError(t, err)
		return strings.TrimSpace(string(b[:n]))
	}
	line() // it is ready
	p, err = notify.Open(c.Process.Pid, is)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, line
}

// rule: M.125
func TestSignalsThatAreCaughtAreSent(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "NOTIFIED=1")
	p, line := child(t, c)
	require.NoError(t, p.Signal(int(syscall.SIGUSR1)))
	if got := line(); got != "SIGUSR1" {
		t.Errorf("the process got %q", got)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSTOP} {
		if err := p.Signal(int(sig)); err == nil {
			t.Errorf("%v was sent", sig)
		}
	}
	sleeper, _ := child(t, exec.Command("sh", "-c", "echo ready; exec sleep 1000")) // SIGUSR1 would end it
	if err := sleeper.Signal(int(syscall.SIGUSR1)); !errors.Is(err, notify.ErrNotCaught) {
		t.Errorf("a signal that is not caught: %v", err)
	}
	if _, err := notify.Open(os.Getppid(), func() bool { return false }); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a process that is not in the container any more: %v", err)
	}
	if _, err := notify.Open(os.Getpid(), is); err == nil {
		t.Error("evictd's own process was opened")
	}
}

// TestFilesThatAreSafeAreWritten has a process whose root is that of the test.
//
// rule: M.126
func TestFilesThatAreSafeAreWritten(t *testing.T) {
	p, _ := child(t, exec.Command("sh", "-c", "echo ready; exec sleep 1000"))
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	path := func(name string) string { return filepath.Join(dir, name) }
	regular := path("regular")
	require.NoError(t, os.WriteFile(regular, []byte(strings.Repeat("longer than a notice\n", 100)), 0o600))
	require.NoError(t, p.WriteFile(regular, "warning\nof memory"))
	text, err := os.ReadFile(regular)
	require.NoError(t, err)
	if string(text) != "warning of memory\n" {
		t.Errorf("the file has %q", text)
	}
	require.NoError(t, p.WriteFile(regular, strings.Repeat("x", 10_000)))
	if text, err := os.ReadFile(regular); err != nil || len(text) != 512 {
		t.Errorf("a long notice has %d bytes: %v", len(text), err)
	}

	fifo := path("fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	if err := p.WriteFile(fifo, "over"); !errors.Is(err, notify.ErrNoReader) {
		t.Errorf("a FIFO without a reader: %v", err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer reader.Close()
	full := 0
	for err = nil; err == nil && full < 1<<20; full++ {
		err = p.WriteFile(fifo, strings.Repeat("x", 511))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a full FIFO: %v", err)
	}

	require.NoError(t, os.Symlink(regular, path("link")))
	require.NoError(t, os.Symlink(dir, path("directory")))
	require.NoError(t, os.WriteFile(path("read-only"), nil, 0o400))
	for name, want := range map[string]error{
		path("link"):              nil,
		path("directory/regular"): unix.ELOOP,
		path("none"):              fs.ErrNotExist,
		path("read-only"):         nil,
		dir:                       nil,
		"/dev/null":               nil,
		"/proc/self/fd/1":         unix.ELOOP,
		"/proc/sys/kernel/sysrq":  nil,
	} {
		err := p.WriteFile(name, "warning")
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, expected %v", name, err, want)
		}
	}
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(regular, 12345, -1))
		if err := p.WriteFile(regular, "warning"); err == nil {
			t.Error("a file of another user was written")
		}
	}
}

// TestFilesAreThoseOfTheRoot has a process in a root of its own, out of which no path leads.
//
// rule: M.126
func TestFilesAreThoseOfTheRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root for chroot")
	}
	program, err := elf.Open("/proc/self/exe")
	require.NoError(t, err)
	defer program.Close()
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Skipf("skipped: this test program needs libraries, which are not in that root: %v %v", libraries, err)
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	require.NoError(t, os.Mkdir(root, 0o755))
	for _, name := range []string{filepath.Join(dir, "notice"), filepath.Join(root, "notice")} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "self"), self, 0o755))
	c := exec.Command("/self")
	c.Env, c.Dir, c.SysProcAttr = []string{"NOTIFIED=1"}, "/", &syscall.SysProcAttr{Chroot: root}
	p, _ := child(t, c)
	require.NoError(t, p.WriteFile("/../../notice", "warning"))
	for name, want := range map[string]string{filepath.Join(dir, "notice"): "", filepath.Join(root, "notice"): "warning\n"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != want {
			t.Errorf("%s has %q: %v", name, text, err)
		}
	}
}
