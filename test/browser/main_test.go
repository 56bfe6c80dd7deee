// Package browser_test opens the status pages of the built programs in a real
// browser, Chromium, whose screenshots go to $EVICTD_ARTIFACTS. Pods are processes
// of this test binary in a bounded cgroup of the test's own.
package browser_test

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/harness"
)

// podVariable makes the test binary a pod's process.
const podVariable = "EVICTD_BROWSER_TEST_POD"

// programs is the folder of those that TestMain built.
var programs string

func TestMain(m *testing.M) {
	if os.Getenv(podVariable) != "" {
		playPod()
	}
	os.Exit(buildAndRun(m))
}

// playPod holds as many MiB as each line of its input says, and ends with it.
func playPod() {
	const most = 400 << 20
	memory, err := syscall.Mmap(-1, 0, most, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var mib int
		_, _ = fmt.Sscan(lines.Text(), &mib)
		for i := 0; i < min(mib<<20, most); i += os.Getpagesize() {
			memory[i] = 1
		}
	}
	os.Exit(0)
}

func buildAndRun(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "evictd-browser-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	build := exec.Command("go", "build", "-o", programs+"/", "./cmd/evictd", "./cmd/evictd-apiserver", "./cmd/evictd-scheduler")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

const patience = wait.Limit

var await = wait.Until

// artifacts is where screenshots are kept.
func artifacts(t *testing.T) string {
	t.Helper()
	dir := cmp.Or(os.Getenv("EVICTD_ARTIFACTS"), filepath.Join(os.TempDir(), "evictd-artifacts"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// freeAddress is one of loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve runs a program until the test ends, or the returned function is called.
func serve(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	return harness.Run(t, exec.Command(filepath.Join(programs, name), args...)).Stop
}
