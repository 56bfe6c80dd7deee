package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/evictd/evictd/internal/runtest"
)

// Main is what TestMain of a package with nodes returns to os.Exit.
func Main(m *testing.M) int { return runtest.Main(m, buildWorkload) }

// workload is the program of all pods.
func workload() string { return filepath.Join(runtest.Dir(), "workload") }

func buildWorkload() error {
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", workload(), "github.com/evictd/evictd/test/containerd/cmd/workload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the workload: %w\n%s", err, out)
	}
	return nil
}

var directories atomic.Int32 // made so far, for names of their own

// newDir makes a directory, and removes everything that came of it at the end of the
// test: see runtest.Sweep.
func newDir(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: containers, disks and cgroups are made by root")
	}
	dir := filepath.Join(runtest.Dir(), strconv.Itoa(int(directories.Add(1))))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(runtest.Sweep(dir), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}
