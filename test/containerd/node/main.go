package node

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/evictd/evictd/test/harness"
)

// Main is what TestMain of a package with nodes returns to os.Exit.
func Main(m *testing.M) int { return harness.Main(m, traces) }

// newDir makes a directory, and removes it with its traces at the end of the test, as
// harness.Dir does.
func newDir(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: containers, disks and cgroups are made by root")
	}
	return harness.Dir(t, traces)
}

var building sync.Mutex // of workloadProgram

// workloadProgram is the path of the program of all images.
func workloadProgram(t testing.TB) string {
	t.Helper()
	if program, err := Program("workload"); err == nil { // where there is no Go
		return program
	}
	building.Lock()
	defer building.Unlock()
	program := filepath.Join(harness.Base(t), "bin", "pod")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/evictd/evictd/test/containerd/cmd/workload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the workload: %v\n%s", err, out)
	}
	return program
}

// traces are what containerd leaves behind of a directory, beside what harness.Sweep
// removes.
func traces(dir string) []harness.Trace { return append(processes(dir), sockets(dir)...) }

// daemons are the programs that have the directory in their arguments.
var daemons = []string{"containerd", "containerd-shim-runc-v2", "runc", "ctr"}

func processes(dir string) (found []harness.Trace) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, command := range commands {
		line, _ := os.ReadFile(command) // empty once it has ended
		program, arguments, _ := bytes.Cut(line, []byte{0})
		if !slices.Contains(daemons, filepath.Base(string(program))) || !bytes.Contains(arguments, []byte(dir+"/")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(command))); err == nil {
			found = append(found, harness.ProcessTrace(pid, line))
		}
	}
	return found
}

// Files of a shim's bundle that name its socket, which is below /run/containerd wherever
// the state of containerd is.
var (
	bundles      = []string{"state/io.containerd.runtime.v2.task/*/*/address", "state/io.containerd.runtime.v2.task/*/*/bootstrap.json"}
	shimListener = regexp.MustCompile(`unix://(/[^"\s]+)`)
)

func sockets(dir string) (found []harness.Trace) {
	for _, bundle := range bundles {
		here, _ := filepath.Glob(filepath.Join(dir, bundle))
		below, _ := filepath.Glob(filepath.Join(dir, "*", bundle))
		for _, file := range append(here, below...) {
			text, _ := os.ReadFile(file)
			socket := shimListener.FindSubmatch(text)
			if socket == nil {
				continue
			}
			path := string(socket[1])
			if _, err := os.Lstat(path); err == nil {
				found = append(found, harness.Trace{What: "socket " + path, Remove: func() error { return os.RemoveAll(path) }})
			}
		}
	}
	return found
}
