package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// isolated runs a kubelet that neither changes this host nor meets another kubelet. It has
// directories of its own in place of those that are not below its root directory, and copies of the
// kernel parameters that it sets, in the directory $0. Its mounts below the directory $1 are those
// of the host, as containerd mounts volumes from there.
const isolated = `set -e
root=$1
shift
while read -r _ _ _ _ point _; do
	case $point in "$root"*) ;; *) mount --make-private "$point" 2>/dev/null || true ;; esac
done </proc/self/mountinfo
mkdir -p "$0"
for directory in /var/log/containers /var/lib/kubelet/device-plugins; do
	mkdir -p $directory
	mount -t tmpfs none $directory
done
for parameter in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	copy=$0/${parameter##*/}
	cat /proc/sys/$parameter >"$copy"
	mount --bind "$copy" /proc/sys/$parameter
done
exec "$@"`

// startKubelet runs the node's kubelet.
func (c *Cluster) startKubelet(n *Node) {
	c.T.Helper()
	kubelet := c.program("kubelet")
	n.makeGroup(c)
	config := filepath.Join(n.Dir(), "kubelet.yaml")
	n.configureKubelet(c, nil)
	c.must(os.MkdirAll(n.Kubelet, 0o755))
	c.must(unix.Mount(n.Kubelet, n.Kubelet, "", unix.MS_BIND, ""))
	c.must(unix.Mount("", n.Kubelet, "", unix.MS_SHARED, ""))
	unshare := harness.Need(c.T, "unshare", "util-linux")
	args := []string{
		"--mount", "--propagation", "unchanged", "sh", "-c", isolated, filepath.Join(n.Dir(), "parameters"), n.Kubelet, kubelet,
		"--config=" + config, "--kubeconfig=" + c.API.Kubeconfig(n.identity), "--hostname-override=" + n.Name,
		"--root-dir=" + n.Kubelet, "--cert-dir=" + filepath.Join(n.Kubelet, "pki"), "--v=3",
	}
	n.kubelet = c.run("kubelet-"+n.Name, func() *exec.Cmd { return exec.Command(unshare, args...) })
}

// KillKubelet kills the kubelet of the first node.
func (c *Cluster) KillKubelet() { c.Nodes[0].kubelet.process.Kill() }

// StartKubelet starts the kubelet of the first node, which KillKubelet has killed.
func (c *Cluster) StartKubelet() {
	c.T.Helper()
	c.must(c.Nodes[0].kubelet.start())
}

// KubeletLog is what the kubelet of the first node has logged, at all of its starts.
func (c *Cluster) KubeletLog() string {
	c.T.Helper()
	text, err := os.ReadFile(c.Nodes[0].kubelet.log)
	c.must(err)
	return string(text)
}

// Reconfigure restarts the kubelet of the first node with other values of some fields, until
// the test ends.
func (c *Cluster) Reconfigure(fields map[string]any) {
	c.T.Helper()
	restart := func(fields map[string]any) {
		c.KillKubelet()
		c.Nodes[0].configureKubelet(c, fields)
		c.StartKubelet()
	}
	restart(fields)
	c.T.Cleanup(func() { restart(nil) })
}

// configureKubelet writes the kubelet's configuration, with other values of some fields.
func (n *Node) configureKubelet(c *Cluster, fields map[string]any) {
	c.T.Helper()
	configuration := n.kubeletConfiguration(c)
	maps.Copy(configuration, n.fields)
	maps.Copy(configuration, fields)
	text, err := json.Marshal(configuration)
	c.must(err)
	c.must(os.WriteFile(filepath.Join(n.Dir(), "kubelet.yaml"), text, 0o644))
}

// makeGroup makes the node's cgroup in the hierarchies and with the controllers that the
// kubelet needs and evictd does not.
func (n *Node) makeGroup(c *Cluster) {
	c.T.Helper()
	for _, top := range harness.CgroupsAt("/") {
		group := filepath.Join(top, n.Group)
		c.must(os.MkdirAll(group, 0o755))
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if all, err := os.ReadFile(filepath.Join(top, file)); err == nil && len(bytes.TrimSpace(all)) > 0 {
				c.must(os.WriteFile(filepath.Join(group, file), all, 0o644))
			}
		}
		if all, err := os.ReadFile(filepath.Join(top, "cgroup.controllers")); err == nil { // v2
			for controller := range strings.FieldsSeq(string(all)) {
				c.must(os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+"+controller), 0o644))
			}
		}
	}
}

// kubeletConfiguration is a KubeletConfiguration: allocatable is the limit of the node's
// cgroup, and the kubelet evicts below 20Mi alone. It removes no images, whatever the disk of
// this host has left: they cannot be pulled again.
func (n *Node) kubeletConfiguration(c *Cluster) map[string]any {
	c.T.Helper()
	var info unix.Sysinfo_t
	c.must(unix.Sysinfo(&info))
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "127.0.0.1", "port": freePort(c), "healthzPort": 0,
		"authentication":              map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false}},
		"authorization":               map[string]any{"mode": "AlwaysAllow"},
		"cgroupDriver":                cmp.Or(harness.Driver, sandbox.Cgroupfs),
		"cgroupRoot":                  n.KubeletRoot(),
		"containerRuntimeEndpoint":    n.Endpoint(),
		"evictionHard":                map[string]string{"memory.available": "20Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"failCgroupV1":                false,
		"failSwapOn":                  false,
		"imageGCHighThresholdPercent": 100,
		"makeIPTablesUtilChains":      false,
		"oomScoreAdj":                 0,
		"podLogsDir":                  n.Logs,
		"resolvConf":                  "",
		"staticPodPath":               n.staticPods(c),
		"systemReserved":              map[string]string{"memory": strconv.FormatInt(int64(info.Totalram)*int64(info.Unit)-n.Memory, 10)},
		"volumePluginDir":             filepath.Join(n.Dir(), "volume-plugins"),
	}
}

func (n *Node) staticPods(c *Cluster) string {
	dir := filepath.Join(n.Dir(), "static")
	c.must(os.MkdirAll(dir, 0o755))
	return dir
}

func freePort(c *Cluster) int {
	c.T.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	c.must(err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
