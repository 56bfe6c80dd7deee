package suite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evictd/evictd/test/containerd/node"
)

// panicVariable makes the test below panic in the middle of its work.
const panicVariable = "EVICTD_CONTAINERD_TEST_PANIC"

func TestNothingIsLeftOfATestThatPanics(t *testing.T) {
	t.Parallel()
	if os.Getenv(panicVariable) != "" {
		disk := node.Disk(t, node.Ext4, 96*node.MiB, 4000)
		n := node.Start(t, node.Built, node.Options{Root: filepath.Join(disk, "root")})
		n.Pod("orphan", node.Spec{}).Do("ignore-term")
		n.Freeze()
		go panic("in " + n.Group) // as the timer of -timeout does: nothing is cleaned up
		select {}
	}
	another := exec.Command("/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
	another.Env = append(os.Environ(), panicVariable+"=1")
	out, err := another.CombinedOutput()
	if _, why, skips := strings.Cut(string(out), "skipped: "); skips && err == nil {
		why, _, _ = strings.Cut(why, "\n")
		t.Skip("skipped: no node to leave behind: " + why)
	}
	if err == nil {
		t.Errorf("a test that panics passes: %s", out)
	}
	for _, what := range []string{"process", "cgroup", "mount of overlay", "mount of ext4", "loop device", "socket"} {
		if !strings.Contains(string(out), "left behind: "+what) {
			t.Errorf("no %s was left behind that could be removed: %s", what, out)
		}
	}
	group := regexp.MustCompile(`panic: in /(evictd-run-\d+)`).FindSubmatch(out)
	if group == nil {
		t.Fatalf("it did not panic: %s", out)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + string(group[1]) + "*", "/sys/fs/cgroup/" + string(group[1]) + "*", filepath.Join(os.TempDir(), string(group[1]))} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	}
}
