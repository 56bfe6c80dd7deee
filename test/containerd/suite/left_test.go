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
		n := node.Start(t, node.Debian, node.Options{Root: filepath.Join(disk, "root")})
		n.Pod("orphan", node.Spec{}).Do("ignore-term")
		n.Freeze()
		go panic("in " + n.Group) // as the timer of -timeout does: nothing is cleaned up
		select {}
	}
	again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "EVICTD_CONTAINERD_TEST_") { // of this run
			again.Env = append(again.Env, variable)
		}
	}
	again.Env = append(again.Env, panicVariable+"=1")
	out, err := again.CombinedOutput()
	if strings.Contains(string(out), "skipped: ") {
		t.Skipf("skipped: no node to leave behind: %s", out)
	}
	if err == nil {
		t.Errorf("a test that panics passes: %s", out)
	}
	for _, what := range []string{"process", "cgroup", "mount of overlay", "mount of ext4", "loop device", "socket"} {
		if !strings.Contains(string(out), "left behind: "+what) {
			t.Errorf("no %s was left behind that could be taken away: %s", what, out)
		}
	}
	group := regexp.MustCompile(`panic: in /(evictd-containerd-\d+)`).FindSubmatch(out)
	if group == nil {
		t.Fatalf("it did not panic: %s", out)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/" + string(group[1]) + "*", "/sys/fs/cgroup/" + string(group[1]) + "*", filepath.Join(os.TempDir(), string(group[1]))} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	}
}
