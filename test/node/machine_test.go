package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/runtest"
)

// onMachine says that the whole machine may be put under pressure and has the package
// installed: a virtual one of test/vm.
var onMachine = os.Getenv("EVICTD_MACHINE") != ""

// The installed service, where it serves and what it keeps.
const (
	service      = "evictd.service"
	statusSocket = "/run/evictd/status.sock"
	journalFile  = "/var/lib/evictd/journal"
)

// theMachine takes the whole machine for the node.
func theMachine(t *testing.T) *node {
	t.Helper()
	if !onMachine {
		t.Skip("skipped: it takes a machine of its own: make test-vm")
	}
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

const transition = "evictionPressureTransitionPeriod"

const machineConfiguration = `apiVersion: evictd.io/v1alpha1
kind: EvictdConfiguration
mode: native
nodeName: machine
criEndpoint: none
podManifests: %s
nodeStatusFile: %s
housekeepingInterval: 1s
%s
`

// configure writes the service's configuration.
func (n *node) configure(settings string) {
	n.t.Helper()
	if !strings.Contains(settings, transition) {
		settings += "\n" + transition + ": 5s"
	}
	text := fmt.Sprintf(machineConfiguration, n.manifests(), n.statusFile(), settings)
	if err := os.WriteFile("/etc/evictd/evictd.yaml", []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
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

// restart starts the installed service anew, as if it had never run. When the test
// ends, the machine must have refused it nothing.
func (n *node) restart(settings string) *daemon {
	n.t.Helper()
	n.configure(settings)
	systemctl(n.t, "stop", service)
	_ = os.Remove(journalFile)
	if out, err := exec.Command("systemctl", "start", service).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s%s", err, out, journalOf(n.t, "--unit="+service, "--lines=10"))
	}
	invocation := systemctl(n.t, "show", "--property=InvocationID", "--value", service)
	n.t.Cleanup(func() {
		told := journalOf(n.t, "_SYSTEMD_INVOCATION_ID="+invocation)
		for line := range strings.Lines(told) {
			for _, refusal := range []string{"operation not permitted", "function not implemented", "read-only file system", "permission denied", "not to be had"} {
				if strings.Contains(line, refusal) {
					n.t.Errorf("the machine refuses something: %s", line)
				}
			}
		}
		if n.t.Failed() {
			n.t.Logf("the journal:\n%s", told)
		}
	})
	return &daemon{runtest.At(n.t, statusSocket), n.t}
}

func systemctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// journalOf is what the journal holds of the lines that match.
func journalOf(t testing.TB, match ...string) string {
	t.Helper()
	out, err := exec.Command("journalctl", append([]string{"--no-pager", "--quiet", "--output=short-precise"}, match...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("journalctl: %v: %s", err, out)
	}
	return string(out)
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

// mainProcess is the service's.
func mainProcess(t *testing.T) string {
	t.Helper()
	return systemctl(t, "show", "--property=MainPID", "--value", service)
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
