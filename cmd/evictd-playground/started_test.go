package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// unprivileged is the id of a user and group without files and privileges.
const unprivileged = 65534

// built is the directory of all programs.
var built string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "pg-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(built)
		build := exec.Command("go", "build", "-buildvcs=false", "-o", built, ".", "../evictd", "../evictd-agent", "../evictd-apiserver", "../evictd-scheduler")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("build: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

var programNames = []string{"evictd-playground", "evictd", "evictd-agent", "evictd-apiserver", "evictd-scheduler"}

// programs links all programs into a directory that only its owner may enter, beside
// an empty one for temporary files.
func programs(t *testing.T, asUser bool) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg-") // short: a socket's path has 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range programNames {
		require.NoError(t, os.Link(filepath.Join(built, name), filepath.Join(dir, name)))
	}
	tmp := filepath.Join(dir, "tmp")
	require.NoError(t, errors.Join(os.Mkdir(tmp, 0o700), os.Chmod(dir, 0o700)))
	if asUser && os.Geteuid() == 0 {
		require.NoError(t, errors.Join(os.Chown(tmp, unprivileged, unprivileged), os.Chown(dir, unprivileged, unprivileged)))
	}
	return dir
}

// started is a playground that runs.
type started struct {
	*exec.Cmd
	dir    string
	stdout *bufio.Reader
	errs   bytes.Buffer
	out    strings.Builder
}

func start(t *testing.T, asUser bool, args ...string) *started {
	t.Helper()
	return startIn(t, programs(t, asUser), asUser, args...)
}

// startIn starts the playground with the programs of a directory.
func startIn(t *testing.T, dir string, asUser bool, args ...string) *started {
	t.Helper()
	s := &started{dir: dir}
	s.Cmd = exec.Command(filepath.Join(s.dir, "evictd-playground"), args...)
	s.Env = append(os.Environ(), "TMPDIR="+filepath.Join(s.dir, "tmp"))
	s.Dir = s.dir
	s.Stderr = &s.errs
	if asUser && os.Geteuid() == 0 {
		s.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	}
	out, err := s.StdoutPipe()
	require.NoError(t, err)
	s.stdout = bufio.NewReader(out)
	require.NoError(t, s.Start())
	return s
}

// until reads on until a line holds the text.
func (s *started) until(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := s.stdout.ReadString('\n')
		s.out.WriteString(line)
		if err != nil {
			t.Fatalf("it never said %q: %s%s", text, &s.out, &s.errs)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// end waits for the end, and for an exit code.
func (s *started) end(t *testing.T, code int) {
	t.Helper()
	if _, err := io.Copy(&s.out, s.stdout); err != nil {
		t.Error(err)
	}
	_ = s.Wait() // its code is looked at
	if s.ProcessState.ExitCode() != code {
		t.Errorf("it ended with %v, want exit code %d:\n%s%s", s.ProcessState, code, &s.out, &s.errs)
	}
}

func (s *started) says(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(s.out.String()+s.errs.String(), text) {
			t.Errorf("it did not say %q:\n%s%s", text, &s.out, &s.errs)
		}
	}
}

// leavesNothing looks for files, processes and cgroups.
func (s *started) leavesNothing(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil || len(files) > 0 {
		t.Errorf("files are left: %v %v", files, err)
	}
	if left := s.children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	name := "evictd-playground-" + strconv.Itoa(s.Process.Pid)
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("cgroups are left: %v", left)
		}
	}
}

// children are the processes that run one of the programs.
func (s *started) children(t *testing.T) (left []string) {
	t.Helper()
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	for _, link := range programs {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, s.dir) {
			left = append(left, link)
		}
	}
	return left
}

// needCgroups skips where no cgroup can be made.
func needCgroups(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Skip(err)
	}
	probe := "/evictd-playground-test-" + strconv.Itoa(os.Getpid())
	err = cgroups.Create(probe+"/below", cgroup.Limits{Memory: stats.Known(16 * console.MiB), PIDs: stats.Known(16)})
	if deleted := cgroups.Delete(probe); deleted != nil {
		t.Error(deleted)
	}
	if err != nil {
		t.Skip(err)
	}
}

// removeCgroups removes those of a playground that could not.
func (s *started) removeCgroups(t *testing.T) {
	t.Helper()
	cgroups, err := cgroup.Discover("")
	require.NoError(t, err)
	// A process leaves its cgroup after its memory.
	wait.Until(t, "the cgroups to be without processes", func() bool {
		return cgroups.Delete("/evictd-playground-"+strconv.Itoa(s.Process.Pid)) == nil
	})
}
