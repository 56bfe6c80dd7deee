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
func Main(m *testing.M) int { return runtest.Main(m, build) }

// program is the path of one that build has built.
func program(name string) string { return filepath.Join(runtest.Dir(), "bin", name) }

// build builds the program of all pods, and evictd with its agent.
func build() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	for dir, packages := range map[string][]string{root: {"./cmd/workload"}, filepath.Join(root, "../.."): {"./cmd/evictd", "./cmd/evictd-agent"}} {
		build := exec.Command("go", append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", program("") + "/"}, packages...)...)
		build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %v: %w\n%s", packages, err, out)
		}
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
