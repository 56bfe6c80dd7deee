// Package v2_test runs the tests that make cgroups again on cgroup v2, in user-mode Linux
// (package uml), whatever version this host has.
package v2_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/guest"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/uml"
)

func TestMain(m *testing.M) {
	uml.Main()
	os.Exit(harness.Main(m))
}

// The suites of readers and others run one after the other; go test -short leaves the others out. Package
// test/node is not among them: a system call takes 30 to 50 times as long in a user-mode kernel as on the
// host, and a page that is touched for the first time takes 10 times as long, so that a test of a node takes
// half a minute. Tests of nodes run on cgroup v2 in test/vm.
var (
	readers = []guest.Suite{{Package: "cgroup"}, {Package: "stats/collect"}}
	others  = []guest.Suite{
		{Package: "eviction/kill"}, {Package: "eviction/daemon"},
		{Package: "eviction/pods/runc"}, {Package: "oom/watch"}, {Package: "cmd/evictd-playground/runner"},
	}
)

// limit is how long a kernel may run.
const limit = 15 * time.Minute

// TestOnCgroupV2 runs each suite in the kernel of Debian's package user-mode-linux, and has each of their tests for a test of t.
func TestOnCgroupV2(t *testing.T) {
	kernel, err := uml.Debian()
	if _, is := errors.AsType[uml.Unavailable](err); is {
		t.Skip("skipped:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Dir(harness.Program(t, "evictd"))
	dir := harness.Dir(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	suites := append(readers, others...)
	if testing.Short() {
		suites = readers
	}
	var script strings.Builder
	for _, s := range suites {
		binary := filepath.Join(dir, strings.ReplaceAll(s.Package, "/", "-"))
		guest.Build(t, root, s.Package, binary, "test", "-c")
		script.WriteString("cd " + filepath.Join(root, s.Package) + " && " + s.Command(binary, "-test.timeout="+limit.String()))
	}
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		status, err := uml.Machine{Kernel: kernel, Memory: 1536, Limit: limit}.Run(t.Context(), uml.Command{
			Args: []string{"/bin/sh", "-c", script.String()}, Env: []string{sandbox.ProgramsVariable + "=" + programs}, Output: write,
		})
		write.Close()
		if err == nil && status != 0 {
			err = errors.New("the shell of the suites failed")
		}
		ended <- err
	}()
	left, last := guest.Report(t, read, suites)
	if err := <-ended; err != nil || len(left) > 0 {
		t.Errorf("%v; without a result: %v; the last line was %q", err, left, last)
	}
}
