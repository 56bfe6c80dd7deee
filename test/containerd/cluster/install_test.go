package cluster_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

// systemNamespace is that of the chart.
const systemNamespace = "evictd-system"

// TestTheChartProtectsANodeUntilItIsUninstalled installs image and chart on the first node, as a
// host without systemd. A pod of a Deployment leaks, and evictd is upgraded meanwhile; then
// everything is uninstalled.
// rule: S9.16
func TestTheChartProtectsANodeUntilItIsUninstalled(t *testing.T) {
	c := cluster.Start(t, cluster.Options{})
	host := emptyHost(c)
	protects(c, installation{host: host, inPod: true, traces: func() []string { return traces(t, host) }})
}

// TestTheChartInstallsTheUnitOfAMachine is the same where systemd is the service manager, whose units are then
// changed: in a virtual machine without evictd.
// rule: S9.22
func TestTheChartInstallsTheUnitOfAMachine(t *testing.T) {
	if os.Getenv("EVICTD_MACHINE") == "" {
		t.Skip("skipped: it installs a unit of this host: make vm-chart runs it in a virtual machine")
	}
	c := cluster.Start(t, cluster.Options{})
	protects(c, installation{host: "/", traces: func() []string { return machineTraces(t) }})
	for _, unit := range []string{"evictd.service", "evictd.socket", "evictd-agent.socket"} {
		if out, err := exec.Command("systemctl", "show", "--property=LoadState", "--value", unit).Output(); err != nil || string(out) != "not-found\n" {
			t.Errorf("%s is %q, %v", unit, out, err)
		}
	}
}

// installation is the host of the first node.
type installation struct {
	host   string // its root directory
	inPod  bool   // it has no systemd
	traces func() []string
}

// protects installs evictd on the first node until it is uninstalled.
func protects(c *cluster.Cluster, i installation) {
	t := c.T
	t.Helper()
	image(c)
	before := i.traces()
	installed := time.Now()
	chart(c, i)
	c.Await("the pod of the DaemonSet to be ready", func() bool { return ready(c) })
	t.Logf("evictd is ready %v after its installation", time.Since(installed).Round(time.Second))
	e := &node.Evictd{Evictd: &harness.Evictd{Process: harness.At(t, filepath.Join(i.host, "run/evictd/status.sock"))}}
	e.Await("evictd to report to the API server", func(s *nodestatus.Status) bool { return s.API != nil && s.API.Connected && len(s.API.Refused) == 0 })
	c.AwaitNoTaint()
	namespace := c.Namespace("victims")
	h := c.Record(namespace)
	s := scenario{kind: cluster.Deployment, orders: []string{"ignore-term"}, shortage: memory}
	victim, _ := s.makeVictim(c, h, namespace)
	e.Await("evictd to measure the pod", func(status *nodestatus.Status) bool { return harness.Measured(status, memory.signal, victim.UID) })

	c.Pod(victim.Pod).Do(memory.press[0].(string), memory.press[1:]...)
	eviction := e.Evictd.AwaitEviction(victim.Pod, nil)
	upgrade(c)
	h.Await("a pod that replaces it to be ready", func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.UID != victim.UID })
	s.mustBeEvicted(c, h, victim.UID)
	c.Await("the pod of the upgraded DaemonSet to be ready", func() bool { return ready(c) })
	e.Await("everything to be reported", func(s *nodestatus.Status) bool { return s.API != nil && s.API.Untold == 0 })
	h.Check(victim.UID, eviction.Decided.Time)
	c.Remove(namespace)
	uninstall(c)
	left := slices.DeleteFunc(i.traces(), func(path string) bool { return slices.Contains(before, path) })
	if len(left) > 0 {
		t.Errorf("the host still has %q", left)
	}
}

// uninstall removes evictd from all nodes, as the Job of the chart does.
func uninstall(c *cluster.Cluster) {
	c.T.Helper()
	command := exec.CommandContext(c.T.Context(), harness.Program(c.T, "kubectl-evictd"), "uninstall")
	command.Env = append(os.Environ(), "KUBECONFIG="+c.API.Kubeconfig(apiserver.Admin))
	if out, err := command.CombinedOutput(); err != nil {
		c.T.Fatalf("%v: %s", err, out)
	}
}

// image builds the image of a node, or takes that of make vm-chart on a machine without a compiler, and hands it to
// the containerd of the first node.
func image(c *cluster.Cluster) {
	c.T.Helper()
	root, err := sandbox.SourceRoot()
	require.NoError(c.T, err)
	layout := filepath.Join(root, "bin/image/evictd")
	if _, err := exec.LookPath("go"); err == nil {
		dir := c.T.TempDir()
		build := exec.CommandContext(c.T.Context(), "make", "-C", root, "image", "IMAGES="+dir, "ARCHS="+runtime.GOARCH, "VERSION=test")
		if out, err := build.CombinedOutput(); err != nil {
			c.T.Fatalf("%s: %v\n%s", build, err, out)
		}
		layout = filepath.Join(dir, "evictd")
	}
	c.Nodes[0].ImportLayout(layout, "ghcr.io/evictd/evictd:test")
}

// machineTraces are the paths of this host that have the name of evictd, where an installation can
// leave any. Slices of the nodes have it as well.
func machineTraces(t *testing.T) (paths []string) {
	t.Helper()
	for _, dir := range []string{"/etc", "/opt", "/run", "/var/lib", "/sys/fs/cgroup/evictd.slice"} {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error { // others change what they have there
			switch name := filepath.Base(path); {
			case strings.HasPrefix(name, "evictd_run_"):
				return nil
			case err == nil && strings.Contains(name, "evictd"):
				paths = append(paths, path)
			}
			return nil
		})
	}
	return paths
}

// emptyHost is the root directory of a host without systemd, with the kernel's filesystems of this
// host and the directory of the first node's containerd.
func emptyHost(c *cluster.Cluster) (root string) {
	c.T.Helper()
	root, err := os.MkdirTemp("", "host") // the path of a socket has at most 107 bytes
	require.NoError(c.T, err)
	c.T.Cleanup(func() { require.NoError(c.T, os.Remove(root)) })
	mount := func(source, at, kind string, flags uintptr) {
		c.T.Helper()
		at = filepath.Join(root, at)
		require.NoError(c.T, os.MkdirAll(at, 0o755))
		require.NoError(c.T, unix.Mount(source, at, kind, flags, ""))
		c.T.Cleanup(func() { require.NoError(c.T, unix.Unmount(at, unix.MNT_DETACH)) })
	}
	mount("tmpfs", "/", "tmpfs", 0)
	require.NoError(c.T, unix.Mount("", root, "", unix.MS_SHARED, ""))
	for _, dir := range []string{"/proc", "/sys", "/dev", c.Nodes[0].Dir()} {
		mount(dir, dir, "", unix.MS_BIND|unix.MS_REC)
	}
	for _, dir := range []string{"etc", "opt", "run", "tmp", "var/lib", "var/log"} {
		require.NoError(c.T, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	return root
}

// traces are the paths that an installation can leave on a host, in its own file system and among
// the cgroups.
func traces(t *testing.T, host string) (paths []string) {
	t.Helper()
	for _, dir := range []string{"etc", "opt", "run", "tmp", "var"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(host, dir), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasPrefix(path, filepath.Join(host, "tmp", "evictd")) {
				return fs.SkipDir
			}
			paths = append(paths, path)
			return err
		}))
	}
	for _, top := range harness.CgroupsAt("/") {
		if _, err := os.Stat(filepath.Join(top, "evictd")); err == nil {
			paths = append(paths, filepath.Join(top, "evictd"))
		}
	}
	return paths
}

// chart installs the chart on the first node, with a directory in the place of its root directory:
// what helm makes of it, with the network of the host, as there is no other one here.
func chart(c *cluster.Cluster, i installation) {
	c.T.Helper()
	root, err := sandbox.SourceRoot()
	require.NoError(c.T, err)
	helm := filepath.Join(root, "test/deploy/bin/helm")
	if _, err := os.Stat(helm); err != nil {
		c.T.Skip("skipped: helm is not built: make helm builds it")
	}
	config, err := c.API.Config(apiserver.Admin)
	require.NoError(c.T, err)
	// kube-controller-manager makes it in a cluster that has its certificate.
	_, err = c.CoreV1().ConfigMaps(systemNamespace).Create(c.T.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(config.CAData)},
	}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	first := c.Nodes[0]
	hard := map[string]any{memory.signal: "150Mi"}
	for _, other := range []string{"nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"} {
		hard[other] = nil // in place of the chart's: it is the disk of this host
	}
	values, err := json.Marshal(map[string]any{
		"image": map[string]any{"tag": "test", "pullPolicy": "Never"},
		"node": map[string]any{
			"inPod": i.inPod, "apiServer": config.Host, "nodeSelector": map[string]string{v1.LabelHostname: first.Name},
			"config": map[string]any{
				"dryRun": false, "cgroupRoot": first.Group, "podsCgroup": first.PodsGroup(), "criEndpoint": "unix:" + strings.TrimPrefix(first.Endpoint(), "unix://"),
				"evictionHard": hard, "housekeepingInterval": "1s", "evictionPressureTransitionPeriod": "5s",
			},
		},
	})
	require.NoError(c.T, err)
	template := exec.CommandContext(c.T.Context(), helm, "template", "evictd", filepath.Join(root, "deploy/chart/evictd"), "--namespace="+systemNamespace, "--no-hooks", "--values=-")
	template.Stdin = bytes.NewReader(values)
	objects, err := template.Output()
	require.NoError(c.T, err)
	var changed [][]byte
	for document := range bytes.SplitSeq(objects, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("kind: DaemonSet")) {
			var set apps.DaemonSet
			require.NoError(c.T, yaml.UnmarshalStrict(document, &set))
			set.Spec.Template.Spec.HostNetwork = true
			for _, volume := range set.Spec.Template.Spec.Volumes {
				if volume.HostPath != nil {
					volume.HostPath.Path = i.host
				}
			}
			document, err = yaml.Marshal(set)
			require.NoError(c.T, err)
		}
		changed = append(changed, document)
	}
	c.Apply(bytes.Join(changed, []byte("\n---\n")))
	c.T.Cleanup(func() {
		logs, _ := filepath.Glob(filepath.Join(first.Logs, systemNamespace+"_*", "evictd", "*.log")) // the pattern is right
		for _, log := range logs {
			if c.T.Failed() {
				c.T.Logf("%s:\n%s", log, require.ReadFile(c.T, log))
			}
		}
		c.Remove(systemNamespace)
	})
}

// ready says whether the pods of the DaemonSet are those of its latest revision, and ready. It ends
// the test where an installer has ended by itself.
func ready(c *cluster.Cluster) bool {
	c.T.Helper()
	pods, err := c.CoreV1().Pods(systemNamespace).List(c.T.Context(), metav1.ListOptions{LabelSelector: "app=evictd"})
	require.NoError(c.T, err)
	for _, pod := range pods.Items {
		for _, container := range pod.Status.ContainerStatuses {
			if end := container.LastTerminationState.Terminated; end != nil {
				c.T.Fatalf("the installer has ended with %d: %s", end.ExitCode, end.Message)
			}
		}
	}
	set, err := c.AppsV1().DaemonSets(systemNamespace).Get(c.T.Context(), "evictd", metav1.GetOptions{})
	require.NoError(c.T, err)
	s := set.Status
	return s.ObservedGeneration == set.Generation && s.DesiredNumberScheduled == 1 && s.UpdatedNumberScheduled == 1 && s.NumberReady == 1
}

// upgrade has the pod of the DaemonSet replaced, as another image does.
func upgrade(c *cluster.Cluster) {
	c.T.Helper()
	_, err := c.AppsV1().DaemonSets(systemNamespace).Patch(c.T.Context(), "evictd", types.StrategicMergePatchType,
		[]byte(`{"spec": {"template": {"metadata": {"annotations": {"release": "next"}}}}}`), metav1.PatchOptions{})
	require.NoError(c.T, err)
}
