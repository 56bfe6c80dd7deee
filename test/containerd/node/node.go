// Package node runs nodes for tests: a real containerd of its own, on a
// directory of its own, and pods in it that are started as the kubelet starts
// them, below a bounded cgroup that is taken for the node's. What tests break,
// they break through it: it freezes, kills and restarts containerd.
//
//	node.Each(t, func(t *testing.T, v node.Version) {
//		n := node.Start(t, v, node.Options{Root: node.Disk(t, node.Ext4, 96*node.MiB, 4000)})
//		p := n.Pod("writer", node.Spec{EmptyDirs: map[string]string{"scratch": "4Mi"}})
//		p.Do("write", "/scratch/file", 8*node.MiB, 0)
//		p.AwaitEnd()
//	})
//
// A fault fails the test. At the end of the test everything is gone, and Main,
// which a package's TestMain calls, makes sure of it.
package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cgroup/cgrouptest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// MiB is a number of bytes.
const MiB = 1 << 20

// Bounds of a node. A container takes about 1 MiB and 6 threads, and so does a
// sandbox.
const (
	defaultMemory = 512 * MiB
	maxPIDs       = 8192
)

// Options say how a node differs from one that has all in its own directory.
type Options struct {
	// Root is containerd's: images and writable layers. It may be on a Disk.
	Root string
	// Snapshots is the snapshotter's root, where images are unpacked and writable
	// layers are. Unless it is set that is below Root.
	Snapshots string
	// Kubelet holds the volumes of pods, as /var/lib/kubelet does.
	Kubelet string
	// Logs holds the logs of pods, as /var/log/pods does.
	Logs string
	// Snapshotter is overlayfs unless it is set.
	Snapshotter string
	// Memory bounds all pods together, in bytes; 0 is 512 MiB.
	Memory int64
}

// Node is a running containerd and its pods. The pods survive it.
type Node struct {
	Options
	// Runtime and Images are clients of its CRI, see Call.
	Runtime runtime.RuntimeServiceClient
	Images  runtime.ImageServiceClient
	// Group is the cgroup of the node, as package cgroup names it. The pods are in its
	// child PodsGroup, by harness.Driver.
	Group string

	t       testing.TB
	version Version
	dir     string
	cgroups *cgroup.System
	daemon  *daemon
	uids    int
}

// Start runs a node of a version of containerd, with the images Workload and
// that of sandboxes. It skips the test where that cannot be.
func Start(t testing.TB, v Version, o Options) *Node {
	t.Helper()
	dir := newDir(t)
	programs, err := v.programs()
	if err != nil {
		t.Skip("skipped:", err)
	}
	cgroups := cgrouptest.System(t)
	inDir := func(path *string, name string) {
		if *path == "" {
			*path = filepath.Join(dir, name)
		}
	}
	inDir(&o.Root, "root")
	inDir(&o.Kubelet, "kubelet")
	inDir(&o.Logs, "logs")
	if o.Snapshotter == "" {
		o.Snapshotter = "overlayfs"
	}
	if o.Snapshots == "" {
		o.Snapshots = filepath.Join(o.Root, snapshotterID(o.Snapshotter))
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	n := &Node{Options: o, Group: groupOf(dir), t: t, version: v, dir: dir, cgroups: cgroups, daemon: &daemon{programs: programs}}
	all := sandbox.Node{Cgroups: cgroups, Driver: harness.Driver, Group: "/"}
	if err := all.Make(n.Group, cgroup.Limits{Memory: stats.Known(o.Memory), PIDs: stats.Known(maxPIDs)}); err != nil {
		t.Skip("skipped: cgroups with limits of memory and pids cannot be made:", err)
	}
	require.NoError(t, os.Mkdir(n.networks(), 0o755))
	for file, text := range map[string]string{n.config(): n.configuration(programs), filepath.Join(n.networks(), "none.conflist"): network} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	n.connect()
	n.Restart()
	t.Cleanup(n.stop)
	n.Import(pause, Image{Name: Workload})
	return n
}

func groupOf(dir string) string {
	if harness.Driver == sandbox.Systemd {
		return harness.SliceOf(dir)
	}
	return harness.CgroupOf(dir)
}

// KubeletRoot is Group as the cgroupRoot of a KubeletConfiguration.
func (n *Node) KubeletRoot() string { return harness.CgroupOf(n.dir) }

// PodsGroup is the name of the cgroup of the pods below Group.
func (n *Node) PodsGroup() string {
	if harness.Driver == sandbox.Systemd {
		return strings.TrimSuffix(n.Group[1:], ".slice") + "-kubepods.slice"
	}
	return "kubepods"
}

// Cgroup opens Group.
func (n *Node) Cgroup() (*cgroup.Group, error) { return n.cgroups.Open(n.Group) }

// Dir is the directory of what the node has outside of Options.
func (n *Node) Dir() string { return n.dir }

// With is the node as another test uses it, while the test that started it runs.
func (n *Node) With(t testing.TB) *Node {
	with := *n
	with.t = t
	return &with
}

func (n *Node) config() string   { return filepath.Join(n.dir, "config.toml") }
func (n *Node) networks() string { return filepath.Join(n.dir, "cni") }
func (n *Node) socket() string   { return filepath.Join(n.dir, "c.sock") }
func (n *Node) log() string      { return filepath.Join(n.dir, "containerd.log") }

// network is a network of CNI whose plugin does not exist: pods are in the network of the
// host. Without a network containerd reports that it is not ready for pods.
const network = `{"cniVersion":"1.0.0","name":"none","plugins":[{"type":"none"}]}`

// Endpoint is the address of the node's CRI.
func (n *Node) Endpoint() string { return "unix://" + n.socket() }

func snapshotterID(name string) string { return "io.containerd.snapshotter.v1." + name }

// configuration is containerd's, in the oldest format that all versions read.
// Their other plugins have no business with the host: NRI and the directory opt
// are outside the node's own. The score of sandboxes is restricted since it is
// lower than a process without CAP_SYS_RESOURCE can make it.
func (n *Node) configuration(p programs) string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = %q
[plugins."io.containerd.internal.v1.opt"]
  path = %q
[plugins.%q]
  root_path = %q
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux/%s"
  snapshotter = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  restrict_oom_score_adj = true
  stats_collect_period = 1
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = %q
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = %q
        Root = %q
        SystemdCgroup = %t
`, n.Root, filepath.Join(n.dir, "state"), n.socket(), filepath.Join(n.dir, "opt"), snapshotterID(n.Snapshotter), n.Snapshots, goruntime.GOARCH, n.Snapshotter, pause.Name, n.networks(), n.Snapshotter, p.runc, filepath.Join(n.dir, "runc"), harness.Driver == sandbox.Systemd)
}

func (n *Node) connect() {
	n.t.Helper()
	connection, err := grpc.NewClient(n.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}}))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { connection.Close() })
	n.Runtime, n.Images = runtime.NewRuntimeServiceClient(connection), runtime.NewImageServiceClient(connection)
}

// ready says whether containerd answers.
func (n *Node) ready() bool {
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Second)
	defer cancel()
	status, err := n.Runtime.Status(ctx, &runtime.StatusRequest{})
	if err != nil {
		return false
	}
	for _, condition := range status.Status.Conditions {
		if condition.Type == runtime.RuntimeReady {
			return condition.Status
		}
	}
	return false
}

// stop ends containerd, and shows what it last said where the test failed.
func (n *Node) stop() {
	n.Kill()
	if !n.t.Failed() {
		return
	}
	text, _ := os.ReadFile(n.log())
	lines := bytes.Split(bytes.TrimSpace(text), []byte{'\n'})
	n.t.Logf("the end of containerd's log:\n%s", bytes.Join(lines[max(0, len(lines)-40):], []byte{'\n'}))
}

// Call makes a call of a node's CRI that must not fail.
func Call[Request, Response any](n *Node, method func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request) Response {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), wait.Limit)
	defer cancel()
	response, err := method(ctx, request)
	if err != nil {
		n.t.Fatalf("%T: %v", request, err)
	}
	return response
}

// Await is harness.Await.
var Await = harness.Await

// processes are those in a cgroup and below it, where there is one.
func (n *Node) processes(group string) []int {
	opened, err := n.cgroups.Open(group)
	if err != nil {
		return nil
	}
	defer opened.Close()
	pids, _ := opened.AppendProcesses(nil)
	return pids
}
