// Package systemd_test boots a private systemd in namespaces, installs the built
// package there, and holds the services to what their units promise, under the
// sandbox as it is shipped. The cgroups are the test's own and bounded.
package systemd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cgroup/cgrouptest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == probeArgument {
		os.Exit(probe())
	}
	os.Exit(harness.Main(m))
}

var await = wait.Until

// machine is a booted systemd.
type machine struct {
	*testing.T
	pid  int // of its PID 1, out here
	root string
}

// packageFile is what `make deb` has built.
func packageFile(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("../../bin/evictd_*_" + runtime.GOARCH + ".deb")
	if err != nil || len(found) != 1 {
		t.Skip("skipped: there is no bin/evictd_*.deb: make deb builds it")
	}
	file, err := filepath.Abs(found[0])
	require.NoError(t, err)
	return file
}

// maxMemory of everything in the namespaces.
const maxMemory = 512 << 20

// notInstalled is the exit code of boot.sh where the package is at fault.
const notInstalled = 3

// boot starts a machine that ends with the test, with a package installed, or "" for none.
func boot(t *testing.T, deb string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: namespaces and cgroups are made by root")
	}
	for _, of := range [][2]string{
		{"/lib/systemd/systemd", "systemd"}, {"unshare", "util-linux"}, {"nsenter", "util-linux"}, {"dpkg", "dpkg"},
		{"pgrep", "procps"}, {"deb-systemd-helper", "init-system-helpers"},
	} {
		harness.Need(t, of[0], of[1])
	}
	cgroups := cgrouptest.System(t)
	dir := harness.Dir(t)
	group := strings.TrimPrefix(harness.CgroupOf(dir), "/")
	if err := cgroups.Create("/"+group, cgroup.Limits{Memory: stats.Known(maxMemory), PIDs: stats.Known(2000)}); err != nil {
		t.Skip("skipped: cgroups with limits of memory and pids cannot be made:", err)
	}
	for _, h := range hierarchiesOf(t) {
		if err := os.MkdirAll(filepath.Join(h, group), 0o755); err != nil {
			t.Skip("skipped: cgroups cannot be made in", h, err)
		}
	}
	var out bytes.Buffer
	c := exec.Command("sh", "boot.sh", dir, deb, group)
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, c.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // which says that it was killed
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // the kernel ends its namespaces
		<-ended
	})
	m := &machine{T: t}
	await(t, "systemd to boot", func() bool {
		select {
		case <-ended:
			if c.ProcessState.ExitCode() == notInstalled {
				t.Fatalf("the package cannot be installed: %s", &out)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			t.Skip("skipped: systemd does not boot in namespaces here: " + lines[len(lines)-1])
		default:
		}
		child, err := exec.Command("pgrep", "-x", "-P", strconv.Itoa(c.Process.Pid), "systemd").Output()
		if err != nil {
			return false
		}
		m.pid, _ = strconv.Atoi(strings.TrimSpace(string(child)))
		m.root = fmt.Sprintf("/proc/%d/root", m.pid)
		state, _, _ := m.try("systemctl", "is-system-running")
		return state == "running" || state == "degraded"
	})
	return m
}

// hierarchiesOf are the mounts of cgroups on this host.
func hierarchiesOf(t *testing.T) []string {
	t.Helper()
	mounts := require.ReadFile(t, "/proc/self/mounts")
	var all []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); fields[2] == "cgroup" || fields[2] == "cgroup2" {
			all = append(all, fields[1])
		}
	}
	return all
}

// inside is a command in the machine.
func (m *machine) inside(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(m.pid), "-a", "-r", "-w/", "--"}, args...)...)
}

// try runs a command in the machine and returns what it wrote.
func (m *machine) try(args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	var out, errs bytes.Buffer
	c := m.inside(ctx, args...)
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	return strings.TrimSpace(out.String()), strings.TrimSpace(errs.String()), err
}

func (m *machine) do(args ...string) string {
	m.Helper()
	out, errs, err := m.try(args...)
	if err != nil {
		m.Fatalf("%s: %v: %s%s", strings.Join(args, " "), err, out, errs)
	}
	return out
}

// property of a unit, as systemctl shows it.
func (m *machine) property(unit, name string) string {
	m.Helper()
	return m.do("systemctl", "show", "--property="+name, "--value", unit)
}

// log of a unit so far, of all instances of a template.
func (m *machine) log(unit string) string {
	m.Helper()
	return m.do("journalctl", "--no-pager", "--quiet", "--output=cat", "--unit="+unit)
}

// pidOf is a service's main process, out here.
func (m *machine) pidOf(unit string) int {
	m.Helper()
	inner := m.property(unit, "MainPID")
	found, err := exec.Command("pgrep", "--ns", strconv.Itoa(m.pid), "--nslist", "pid", ".").Output()
	require.NoError(m, err)
	for pid := range strings.FieldsSeq(string(found)) {
		status, _ := os.ReadFile("/proc/" + pid + "/status")
		for line := range strings.Lines(string(status)) {
			if fields := strings.Fields(line); fields[0] == "NSpid:" && fields[len(fields)-1] == inner {
				outer, _ := strconv.Atoi(pid)
				return outer
			}
		}
	}
	return 0
}

func (m *machine) write(path, text string) {
	m.Helper()
	path = filepath.Join(m.root, path)
	require.NoError(m, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
}
