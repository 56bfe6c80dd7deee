// Package browser_test opens the status pages of the built programs in a real
// browser, Chromium; -artifacts keeps the screenshots. Pods are processes of this test
// binary in a bounded cgroup of the test's own.
package browser_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/runtest"
)

// podVariable makes the test binary a pod's process.
const podVariable = "EVICTD_BROWSER_TEST_POD"

func TestMain(m *testing.M) {
	if os.Getenv(podVariable) != "" {
		playPod()
	}
	os.Exit(runtest.Main(m, build))
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

// program is the path of one of evictd's that build has built.
func program(name string) string { return filepath.Join(runtest.Dir(), name) }

func build() error {
	build := exec.Command("go", "build", "-trimpath", "-o", runtest.Dir()+"/", "./cmd/evictd", "./cmd/evictd-apiserver", "./cmd/evictd-scheduler")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

const patience = runtest.Patience

var await = runtest.Await

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
	return runtest.Run(t, exec.Command(program(name), args...)).Stop
}
