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
	"github.com/evictd/evictd/internal/runtest"
	"github.com/evictd/evictd/test/vm/machine"
)

// theMachine takes the whole machine for the node.
func theMachine(t *testing.T) *node {
	t.Helper()
	machine.Need(t)
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Fatal(err)
	}
	// Pods of one test are strangers to the next.
	return &node{t: t, cgroups: cgroups, group: "/", uids: 100 * int(nodes.Add(1))}
}

// newMachine is theMachine with files and pods that go with the test.
func newMachine(t *testing.T) *node {
	t.Helper()
	n := theMachine(t)
	var err error
	if n.dir, err = os.MkdirTemp("/var/lib/evictd", "test-"); err == nil {
		err = os.Mkdir(n.manifests(), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(n.dir) })
	t.Cleanup(func() {
		await(t, "the pods' cgroup to be removed", func() bool {
			for _, pid := range n.processes("/" + podsCgroup) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			return n.cgroups.Delete("/"+podsCgroup) == nil
		})
	})
	return n
}

// configure writes the service's configuration.
func (n *node) configure(settings string) {
	n.t.Helper()
	machine.Configure(n.t, fmt.Sprintf("podManifests: %s\nnodeStatusFile: %s\n%s", n.manifests(), n.statusFile(), settings))
}

// protect starts the installed service anew, with settings of its configuration. When
// the test ends, the kernel must have killed nobody.
func (n *node) protect(settings string) *daemon {
	n.t.Helper()
	kills := kernelKills(n.t)
	n.t.Cleanup(func() {
		if more := kernelKills(n.t) - kills; more > 0 {
			n.t.Errorf("the kernel had to kill %d processes", more)
		}
	})
	return n.restart(settings)
}

// restart starts the installed service anew, as if it had never run.
func (n *node) restart(settings string) *daemon {
	n.t.Helper()
	n.configure(settings)
	machine.Restart(n.t)
	return &daemon{runtest.At(n.t, machine.StatusSocket), n.t}
}

// kernelKills is how many processes the kernel has killed since its start for want
// of memory.
func kernelKills(t testing.TB) int {
	t.Helper()
	for line := range strings.Lines(content(t, "/proc/vmstat")) {
		if n, is := strings.CutPrefix(line, "oom_kill "); is {
			kills, err := strconv.Atoi(strings.TrimSpace(n))
			if err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range threads {
		_, after, _ := strings.Cut(content(t, file), ") ")
		const policyAt = 41 - 3 // of proc_pid_stat(5), after pid and name
		if fields := strings.Fields(after); len(fields) > policyAt && fields[policyAt] == strconv.Itoa(unix.SCHED_FIFO) {
			n++
		}
	}
	return n
}
