package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// theMachine takes the whole machine for the node.
func theMachine(t *testing.T) *harness.Node {
	t.Helper()
	machine.Need(t)
	cgroups, err := cgroup.Discover("")
	require.NoError(t, err)
	return &harness.Node{Node: &sandbox.Node{Cgroups: cgroups, Driver: harness.Driver, Group: "/"}, T: t}
}

// newMachine is theMachine with files and pods that go with the test.
func newMachine(t *testing.T) *harness.Node {
	t.Helper()
	n := theMachine(t)
	var err error
	if n.Dir, err = os.MkdirTemp("/var/lib/evictd", "test-"); err == nil {
		err = os.Mkdir(n.Manifests(), 0o755)
	}
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(n.Dir) })
	t.Cleanup(func() { n.Clear(n.Pods().Path()) })
	return n
}

// configure writes the service's configuration.
func configure(n *harness.Node, settings string) {
	n.T.Helper()
	machine.Configure(n.T, fmt.Sprintf("podManifests: %s\nnodeStatusFile: %s\n%s", n.Manifests(), n.StatusFile(), settings))
}

// protect starts the installed service again, with settings of its configuration. When
// the test ends, the kernel must have killed no process.
func protect(n *harness.Node, settings string) *harness.Evictd {
	n.T.Helper()
	kills := kernelKills(n.T)
	n.T.Cleanup(func() {
		if more := kernelKills(n.T) - kills; more > 0 {
			n.T.Errorf("the kernel had to kill %d processes", more)
		}
	})
	return restart(n, settings)
}

// restart starts the installed service without its state, as if it had never run.
func restart(n *harness.Node, settings string) *harness.Evictd {
	n.T.Helper()
	configure(n, settings)
	machine.Restart(n.T)
	return &harness.Evictd{Process: harness.At(n.T, machine.StatusSocket)}
}

// kernelKills is how many processes the OOM killer has killed since the kernel's start.
func kernelKills(t testing.TB) int {
	t.Helper()
	for line := range strings.Lines(content(t, "/proc/vmstat")) {
		if n, is := strings.CutPrefix(line, "oom_kill "); is {
			kills, err := strconv.Atoi(strings.TrimSpace(n))
			require.NoError(t, err)
			return kills
		}
	}
	t.Fatal("the kernel counts no kills")
	return 0
}

// realtimeThreads counts the threads of a process that go first.
func realtimeThreads(t *testing.T, pid string) (n int) {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + pid + "/task/*/stat")
	require.NoError(t, err)
	for _, file := range threads {
		_, after, _ := strings.Cut(content(t, file), ") ")
		const policyAt = 41 - 3 // of proc_pid_stat(5), after pid and name
		if fields := strings.Fields(after); len(fields) > policyAt && fields[policyAt] == strconv.Itoa(unix.SCHED_FIFO) {
			n++
		}
	}
	return n
}
