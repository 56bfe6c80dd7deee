package harness_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// fateVariable says how the test below ends in a run that another test starts: by
// "panic", or not at all.
const fateVariable = "EVICTD_HARNESS_TEST_FATE"

// prefix begins the line that names the cgroup of that test's node.
const prefix = "node in "

// TestUnfinished is what the other tests run, with a pod that leaves much behind.
func TestUnfinished(t *testing.T) {
	fate := os.Getenv(fateVariable)
	if fate == "" {
		t.Skip("skipped: other tests of this package run it in a process of its own")
	}
	n := harness.NewNode(t, 64*harness.MiB, 50)
	p := n.Start("orphan", sandbox.Spec{})
	p.Do("ignore-term")
	p.Do("fork 2")
	p.Do("shell setsid sleep infinity") // a process that does not die with its parent
	os.Stdout.WriteString(prefix + n.Group + "\n")
	if fate == "panic" {
		go panic("on purpose") // as the timer of -timeout does: nothing is cleaned up
	}
	select {}
}

// unfinished is a run of that test, with its files in a directory.
func unfinished(t *testing.T, dir, fate string) *exec.Cmd {
	t.Helper()
	harness.NewNode(t, 64*harness.MiB, 50) // or skip: without cgroups nothing is left behind
	return another(dir, "^TestUnfinished$", fateVariable+"="+fate)
}

// another is a run of some tests of this package with its files in a directory.
func another(dir, tests string, variables ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run="+tests)
	cmd.Env = slices.Concat(os.Environ(), []string{"TMPDIR=" + dir}, variables)
	return cmd
}

// mustBeClean fails the test where a run has left a file or a cgroup.
func mustBeClean(t *testing.T, dir, group string) {
	t.Helper()
	for _, pattern := range []string{dir + "/*", "/sys/fs/cgroup" + group + "*", "/sys/fs/cgroup/*" + group + "*"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	}
}

// groupIn is the cgroup of the node that a run names.
func groupIn(t *testing.T, out string) string {
	t.Helper()
	_, after, found := strings.Cut(out, prefix)
	if !found {
		t.Fatalf("the run has made no node: %s", out)
	}
	group, _, _ := strings.Cut(after, "\n")
	return group
}

func TestNothingIsLeftOfATestThatPanics(t *testing.T) {
	t.Parallel()
	dir := harness.Dir(t)
	out, errs, code := harness.Finish(t, unfinished(t, dir, "panic"))
	if code == 0 || !strings.Contains(errs, "left behind: cgroup ") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	mustBeClean(t, dir, groupIn(t, out))
}

func TestNothingIsLeftOfARunThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := harness.Dir(t)
	cmd := unfinished(t, dir, "none")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	run, err := process.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(run.Kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	group := groupIn(t, line)
	if len(harness.CgroupsAt(group)) == 0 {
		t.Error("the run has no cgroup")
	}
	run.Kill()
	harness.Await(t, "the keeper to remove the directory of the run", func() bool {
		left, _ := filepath.Glob(dir + "/*")
		return len(left) == 0
	})
	mustBeClean(t, dir, group)
}

// orphanPrefix begins the line with the id of a process that a test starts and does not
// end.
const orphanPrefix = "orphan is "

// TestOrphan is what the next test runs.
func TestOrphan(t *testing.T) {
	if os.Getenv(fateVariable) == "" {
		t.Skip("skipped: other tests of this package run it in a process of its own")
	}
	out, err := exec.Command("sh", "-c", "setsid sleep infinity >/dev/null 2>&1 & echo $!").Output()
	require.NoError(t, err)
	os.Stdout.WriteString(orphanPrefix + string(out))
	go panic("on purpose")
	select {}
}

func TestAnOrphanOutsideOfAnyCgroupIsKilled(t *testing.T) {
	t.Parallel()
	dir := harness.Dir(t)
	out, errs, code := harness.Finish(t, another(dir, "^TestOrphan$", fateVariable+"=panic"))
	if code == 0 || !strings.Contains(errs, "left behind: process ") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	_, after, _ := strings.Cut(out, orphanPrefix)
	var pid int
	if _, err := fmt.Sscan(after, &pid); err != nil {
		t.Fatalf("the run has started no process: %s", out)
	}
	harness.Await(t, "the process to end", func() bool { return syscall.Kill(pid, 0) != nil })
	mustBeClean(t, dir, "/no-cgroup")
}
