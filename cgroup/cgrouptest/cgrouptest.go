// Package cgrouptest makes bounded cgroups of this host for tests, on whichever version
// the host has.
package cgrouptest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/wait"
)

var made atomic.Int32 // groups so far, for names of their own

// System is the cgroups of this host. It skips the test where the test cannot make any.
func System(t testing.TB) *cgroup.System {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to create cgroups")
	}
	s, err := cgroup.Discover("")
	if err != nil {
		t.Skip("skipped: needs a mounted cgroup hierarchy:", err)
	}
	return s
}

// New makes a group with limits. At the end of the test it kills the processes in the
// group and below it, and removes it. It skips the test where the group cannot be made.
func New(t testing.TB, l cgroup.Limits) (*cgroup.System, string) {
	t.Helper()
	s := System(t)
	group := fmt.Sprintf("/evictd-test-%d-%d", os.Getpid(), made.Add(1))
	if err := s.Create(group, l); err != nil {
		if s.Delete(group) != nil || errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(), "read-only") {
			t.Skip("skipped: needs a cgroup hierarchy that may be written to:", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, s, group) })
	return s, group
}

// remove retries while processes end: the kernel returns EBUSY until then.
func remove(t testing.TB, s *cgroup.System, group string) {
	var fault error
	wait.Until(t, "cgroup "+group+" to be removed", func() bool {
		fault = errors.Join(end(s, group), s.Delete(group))
		return fault == nil
	})
}

// end kills the processes of a group and thaws them: under the v1 freezer a killed process
// exits only then.
func end(s *cgroup.System, group string) error {
	g, err := s.Open(group)
	if errors.Is(err, cgroup.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	pids, err := g.AppendProcesses(nil)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	_ = g.Thaw() // there may be no freezer
	return err
}

// Open opens a group, which is closed at the end of the test.
func Open(t testing.TB, s *cgroup.System, group string) *cgroup.Group {
	t.Helper()
	g, err := s.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}
