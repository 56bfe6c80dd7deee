package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// besideKubelet is a program in namespaces of its own with a process that is called
// kubelet: no evictd outside of them takes that for the kubelet of this host.
func besideKubelet(n *harness.Node, program *exec.Cmd) *exec.Cmd {
	n.T.Helper()
	sleep, err := exec.LookPath("sleep")
	require.NoError(n.T, err)
	kubelet := filepath.Join(n.Dir, "kubelet")
	if err := os.Symlink(sleep, kubelet); err != nil && !os.IsExist(err) {
		n.T.Fatal(err)
	}
	const script = `mount -t proc proc /proc || exit 99
"$0" infinity &
until [ "$(cat /proc/$!/comm)" = kubelet ]; do :; done
exec "$@"`
	cmd := exec.Command("sh", slices.Concat([]string{"-c", script, kubelet}, program.Args)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

func TestNativeModeRunsBesideAKubeletOnlyWhereItIsForced(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	hard := sandbox.EvictionHard("memory.available<64Mi")
	unforced := n.Command(sandbox.CgroupRoot(n.Group), sandbox.Mode("native"), hard)
	unforced.Args = slices.DeleteFunc(unforced.Args, func(arg string) bool { return arg == sandbox.Force })
	stdout, stderr, code := harness.Finish(t, besideKubelet(n, unforced))
	if code == 99 {
		t.Skip("skipped: /proc cannot be mounted in namespaces of a test:", stderr)
	}
	if code != 2 || stdout != "" || !strings.Contains(stderr, "--mode native: a kubelet runs here: kubelet, pid ") || !strings.Contains(stderr, "or give --force") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	forced := n.Command(sandbox.CgroupRoot(n.Group), sandbox.Mode("native"), hard)
	d := &harness.Evictd{Process: harness.Serve(t, n.Socket(), besideKubelet(n, forced))}
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
}
