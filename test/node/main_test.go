// Package node_test runs the built evictd against real pods: processes of this test
// binary in bounded cgroups of the test's own, of which the outermost is the node.
// Nothing outside those cgroups is put under pressure.
package node_test

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

func TestMain(m *testing.M) {
	// Tests wait for most of their time: several run on each processor. A node needs at
	// most 256 MiB.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(harness.Main(m))
}

// evictctl runs an evictd that ends by itself.
func evictctl(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return harness.Finish(t, exec.Command(harness.Program(t, "evictd"), args...))
}

// needNoKubelet skips a test of the mode native where the host has a kubelet.
func needNoKubelet(t testing.TB) {
	t.Helper()
	if daemon.FindKubelet().Found() {
		t.Skip("skipped: a kubelet runs on this host, beside which evictd neither registers a node nor refuses restarts")
	}
}

// runWith protects the node with an API server around it.
func runWith(n *harness.Node, a *kube.API, args ...string) *harness.Evictd {
	n.T.Helper()
	if slices.Contains(args, sandbox.Mode("native")) {
		needNoKubelet(n.T)
	}
	return n.Evictd(slices.Concat([]string{longTransition}, a.Flags, args)...)
}

// awaitNodeFile waits until the node's manifest shows a condition as true or as false, and
// its taint with it.
func awaitNodeFile(n *harness.Node, condition v1.NodeConditionType, taint string, raised bool) {
	n.T.Helper()
	harness.Await(n.T, "the node status file to show "+string(condition), func() bool {
		text, err := os.ReadFile(n.StatusFile())
		if err != nil {
			return false
		}
		var file v1.Node
		if err := yaml.UnmarshalStrict(text, &file); err != nil {
			n.T.Fatalf("node status file: %v\n%s", err, text)
		}
		return harness.Shows(&file, condition, taint, raised)
	})
}

// reported says that the API server has everything that evictd reports.
func reported(s *nodestatus.Status) bool { return s.API.Connected && s.API.Untold == 0 }

func content(t testing.TB, file string) string {
	t.Helper()
	text := require.ReadFile(t, file)
	return strings.TrimSpace(string(text))
}
