package uml_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/uml"
)

func TestMain(m *testing.M) {
	uml.Main()
	os.Exit(harness.Main(m)) // which fails the run if a kernel leaves a process behind
}

func find(t *testing.T) uml.Kernel {
	t.Helper()
	kernel, err := uml.Find()
	if err != nil {
		t.Skip("skipped:", err)
	}
	return kernel
}

func TestACommandRunsOnCgroupV2AndChangesNothingOfTheHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	status, err := uml.Machine{Kernel: find(t)}.Run(t.Context(), uml.Command{
		Args:   []string{"/bin/sh", "-c", "cat file; echo guest >file; pwd; echo $VALUE; cat /sys/fs/cgroup/cgroup.subtree_control; exit 3"},
		Dir:    filepath.Dir(file),
		Env:    []string{"VALUE=passed on"},
		Output: &out,
	})
	if err != nil || status != 3 {
		t.Errorf("the exit status is %d, expected 3: %v", status, err)
	}
	for _, want := range []string{"host" + filepath.Dir(file) + "\n", "passed on\n", "cpu", "io", "memory", "pids"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q: %q", want, out.String())
		}
	}
	if text, err := os.ReadFile(file); string(text) != "host" {
		t.Errorf("the file of the host is %q: %v", text, err)
	}
}

func TestACommandRunsAsAServiceOfSystemd(t *testing.T) {
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		t.Skip("skipped: there is no systemd: Debian's package systemd has it")
	}
	var out bytes.Buffer
	status, err := uml.Machine{Kernel: find(t)}.Run(t.Context(), uml.Command{
		Args: []string{"/bin/sh", "-c", "systemctl is-active basic.target; cat /proc/self/cgroup; exit 3"}, Output: &out, Systemd: true,
	})
	if err != nil || status != 3 {
		t.Errorf("the exit status is %d, expected 3: %v", status, err)
	}
	if want := "active\n0::/system.slice/command.service\n"; out.String() != want {
		t.Errorf("the output is %q, expected %q", out.String(), want)
	}
}

func TestAKernelEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the test has seen enough")
	_, err := uml.Machine{Kernel: find(t)}.Run(ctx, uml.Command{
		Args: []string{"/bin/sh", "-c", "sleep 100000 & echo runs; wait"}, Output: writer(func() { cancel(why) }),
	})
	if !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// writer calls itself at each write.
type writer func()

func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

func TestAKernelThatDoesNotBootShowsItsConsole(t *testing.T) {
	program := filepath.Join(t.TempDir(), "linux")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'Kernel panic - not syncing'\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := uml.Machine{Kernel: uml.Kernel{Program: program}}.Run(t.Context(), uml.Command{Args: []string{"/bin/true"}})
	if err == nil || !strings.Contains(err.Error(), "Kernel panic - not syncing") {
		t.Errorf("got %v", err)
	}
}

func TestAMissingKernelIsNamedWithItsPackage(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := uml.Find()
	if _, is := errors.AsType[uml.Unavailable](err); !is || !strings.Contains(err.Error(), "user-mode-linux") {
		t.Errorf("got %v", err)
	}
}
