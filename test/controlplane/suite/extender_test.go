package suite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

// TestKubeSchedulerKeepsOffPressuredNodesByAskingEvictdScheduler runs both with
// the configurations of docs/examples/extender.
func TestKubeSchedulerKeepsOffPressuredNodesByAskingEvictdScheduler(t *testing.T) {
	a := onKubeAPIServer(t)
	root, err := sandbox.SourceRoot()
	require.NoError(t, err)
	full := node("full")
	full.Status.Conditions = append(full.Status.Conditions, v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue})
	a.createNodes(full, node("free"))
	addresses, err := process.Addresses(1)
	require.NoError(t, err)
	address := addresses[0]
	a.schedule(sandbox.Config(filepath.Join(root, "docs/examples/extender/evictd-scheduler.yaml")), "--extender-address="+address)
	a.kubeScheduler(filepath.Join(root, "docs/examples/extender/kube-scheduler.yaml"), address)
	var there []*v1.Pod
	for i := range 8 {
		there = append(there, pod(fmt.Sprint("any-", i), "100m"))
	}
	pinned := pod("pinned", "100m", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "full"} })
	a.createPods(append(there, pinned)...)
	for _, p := range there {
		if on := a.awaitBound(p.Name); on != "free" {
			t.Errorf("pod %s is on node %s", p.Name, on)
		}
	}
	if message := a.awaitRefused("pinned"); !strings.Contains(message, "node(s) were short of disk space or inodes") {
		t.Errorf("the pinned pod was refused for %q", message)
	}
}

// kubeScheduler runs the real one until the test ends, with an extender at an
// address in place of the configuration's.
func (a *api) kubeScheduler(config, extender string) {
	a.t.Helper()
	a.runKubeScheduler(strings.ReplaceAll(string(require.ReadFile(a.t, config)), "127.0.0.1:10270", extender))
}

// runKubeScheduler runs the real one with a configuration until the test ends.
func (a *api) runKubeScheduler(config string, flags ...string) {
	a.t.Helper()
	path := foreign(a.t, "kube-scheduler")
	changed := config +
		fmt.Sprintf("\nclientConnection: {kubeconfig: %s}\nleaderElection: {leaderElect: false}\n", a.Kubeconfig(apiserver.Kube))
	file := filepath.Join(a.t.TempDir(), "kube-scheduler.yaml")
	require.NoError(a.t, os.WriteFile(file, []byte(changed), 0o600))
	a.t.Cleanup(harness.Run(a.t, exec.Command(path, append(flags, "--config="+file, "--secure-port=0")...)).Kill) // SIGTERM ends it with exit code 1
}
