package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// baseVariable names the directory that everything of one run lives in.
const baseVariable = "EVICTD_CONTAINERD_TEST_DIR"

// baseName begins the name of that directory, and of the cgroup of the run.
const baseName = "evictd-containerd-"

// Main is what TestMain of a package with nodes returns to os.Exit. It runs the
// tests in a process of their own and looks afterwards for what they left behind:
// it takes that away also where they panicked or took too long, and then fails.
func Main(m *testing.M) int {
	if os.Getenv(baseVariable) != "" {
		return m.Run()
	}
	base, err := os.MkdirTemp("", baseName)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := 0
	if err := runTests(base); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	for _, left := range traces(base) {
		fmt.Fprintln(os.Stderr, "left behind:", left.what)
		code = 1
	}
	if err := errors.Join(sweep(base), os.RemoveAll(base)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func runTests(base string) error {
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(base, "workload"),
		"github.com/evictd/evictd/test/containerd/cmd/workload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the workload: %w\n%s", err, out)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	tests := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	tests.Env = append(os.Environ(), baseVariable+"="+base)
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	return tests.Run()
}

var directories atomic.Int32 // made so far, for names of their own

// newDir makes a directory, and at the end of the test takes away everything
// that came of it: see traces.
func newDir(t testing.TB) string {
	t.Helper()
	base := os.Getenv(baseVariable)
	if base == "" {
		t.Fatal("the package's TestMain does not call node.Main")
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: containers need root")
	}
	dir := filepath.Join(base, strconv.Itoa(int(directories.Add(1))))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(sweep(dir), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// cgroupOf is the cgroup of what lives in a directory of newDir. Those of a run
// have names that begin with that of its directory and a dash.
func cgroupOf(dir string) string {
	return "/" + strings.ReplaceAll(dir[strings.LastIndex(dir, "/"+baseName)+1:], "/", "-")
}
