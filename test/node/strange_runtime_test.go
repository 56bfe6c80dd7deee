package node_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cri/critest"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// strangeNode has two pods that are known by the container runtime alone.
type strangeNode struct {
	*harness.Node
	runtime        *critest.Server
	hog, bystander *harness.Pod
}

func newStrangeNode(t *testing.T, name string) *strangeNode {
	n := &strangeNode{Node: harness.NewNode(t, nodeMemory, nodePIDs)}
	var pods []critest.Pod
	start := func(name string) *harness.Pod {
		m := n.Manifest(name, sandbox.Spec{})
		p := n.StartIn(m, n.PodGroup(m), nil)
		pods = append(pods, critest.Pod{
			Number: 9 + len(pods), UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Cgroup: p.Group, OOMScoreAdj: 1000, LayerBytes: 4096,
		})
		return p
	}
	n.hog, n.bystander = start("hog"), start("bystander")
	n.runtime = critest.New(name, "1.34.0", n.Dir, pods...)
	return n
}

// serve serves a runtime at a socket of the node.
func (n *strangeNode) serve(runtime *critest.Server, name string) (endpoint string, stop func()) {
	n.T.Helper()
	path := filepath.Join(n.Dir, name)
	listener, err := net.Listen("unix", path)
	require.NoError(n.T, err)
	require.NoError(n.T, os.Chmod(path, 0o666))
	stop = runtime.Serve(listener)
	n.T.Cleanup(stop)
	return "unix:" + path, stop
}

// mustGuard has the hog take the memory: it is evicted, and the other pod is not.
func (n *strangeNode) mustGuard(d *harness.Evictd) {
	n.T.Helper()
	d.AwaitPods(memorySignal, n.hog, n.bystander)
	n.bystander.Do("hold 16Mi")
	press(n.hog, 32)
	d.AwaitGone(n.hog)
	harness.MustRun(n.T, n.bystander)
	d.MustHaveEvicted(n.hog)
}

const hard64 = "memory.available<64Mi"

// TestStrangeRuntimeOfWhichOneMethodFails has a fault of one method from the start: the pods that
// only the runtime knows are guarded all the same, and the method is named.
//
// rule: M.190
func TestStrangeRuntimeOfWhichOneMethodFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		fault  critest.Fault
		says   string // in the status, of the method; "" if nothing fails
	}{
		{"ListImages", critest.Fails, "layer not known"},
		{"ListImages", critest.OneInTen, ""},
		{"ContainerStatus", critest.Hangs, "DeadlineExceeded"},
		{"ContainerStatus", critest.OneInTen, "1 of 2 objects, such as c-9"},
		{"PodSandboxStatus", critest.Fails, "2 of 2 objects, such as s-10"},
		{"ListPodSandbox", critest.Fails, "layer not known"},
		{"ListPodSandbox", critest.Hangs, "DeadlineExceeded"},
		{"ListPodSandbox", critest.OneInTen, ""},
		{"ListContainers", critest.Garbage, "Internal"},
		{"ListContainerStats", critest.Hangs, "DeadlineExceeded"},
		{"ImageFsInfo", critest.Hangs, "DeadlineExceeded"},
		{"Status", critest.Fails, "layer not known"},
		{"Version", critest.Hangs, "DeadlineExceeded"},
		{"Version", critest.Garbage, ""},
	} {
		t.Run(c.method+" "+string(c.fault), func(t *testing.T) {
			t.Parallel()
			n := newStrangeNode(t, "cri-o")
			n.runtime.Faults = map[string]critest.Fault{c.method: c.fault}
			endpoint, _ := n.serve(n.runtime, "cri.sock")
			d := n.Evictd(sandbox.CRIEndpoint(endpoint), sandbox.EvictionHard(hard64))
			d.Await("the fault to be said", func(s *nodestatus.Status) bool {
				return s.Runtime != nil && s.Runtime.Connected && strings.Contains(s.Runtime.Failing[c.method], c.says) && (c.says == "") == (len(s.Runtime.Failing) == 0)
			})
			n.mustGuard(d)
			if c.says != "" {
				if said := strings.Count(d.Log(), "method="+c.method); said != 1 {
					t.Errorf("the log names %s %d times, want once", c.method, said)
				}
			}
		})
	}
}

// rule: M.190
func TestStrangeRuntimeThatHangsAfterItHasAnswered(t *testing.T) {
	t.Parallel()
	n := newStrangeNode(t, "cri-o")
	endpoint, _ := n.serve(n.runtime, "cri.sock")
	d := n.Evictd(sandbox.CRIEndpoint(endpoint), sandbox.EvictionHard(hard64))
	d.AwaitPods(memorySignal, n.hog, n.bystander)
	n.runtime.Change(func(f *critest.Server) { f.Faults = map[string]critest.Fault{critest.Every: critest.Hangs} })
	d.Await("the runtime to count as away", func(s *nodestatus.Status) bool { return !s.Runtime.Connected })
	n.mustGuard(d)
}

// rule: M.190
func TestStrangeRuntimeWhoseStatsHangWhileTheDiskOfImagesIsFull(t *testing.T) {
	t.Parallel()
	n := newStrangeNode(t, "cri-o")
	disk := mountDisk(n.Node)
	n.runtime.Disks.ImageFilesystems[0].FsId.Mountpoint = disk
	n.runtime.Faults = map[string]critest.Fault{"ListContainerStats": critest.Hangs}
	endpoint, _ := n.serve(n.runtime, "cri.sock")
	d := n.Evictd(sandbox.CRIEndpoint(endpoint), sandbox.EvictionHard("imagefs.available<16Mi"))
	d.AwaitCondition(v1.NodeDiskPressure, v1.TaintNodeDiskPressure, false)
	free := fillUp(t, disk)
	d.AwaitCondition(v1.NodeDiskPressure, v1.TaintNodeDiskPressure, true)
	free()
	d.AwaitCondition(v1.NodeDiskPressure, v1.TaintNodeDiskPressure, false)
}

// withSockets runs a program in a mount namespace whose /run has nothing but the sockets of a containerd
// and of a CRI-O, which are links to those of the test.
func withSockets(containerd, crio string, program *exec.Cmd) *exec.Cmd {
	const script = `mount -t tmpfs tmpfs /run && mkdir /run/containerd /run/crio || exit 99
ln -s "$0" /run/containerd/containerd.sock && ln -s "$1" /run/crio/crio.sock || exit 99
shift
exec "$@"`
	path := func(endpoint string) string { return strings.TrimPrefix(endpoint, "unix:") }
	cmd := exec.Command("sh", slices.Concat([]string{"-c", script, path(containerd), path(crio)}, program.Args)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

// TestStrangeNodeWithDockersContainerdBesideCRIO has a containerd without its CRI plugin at the first of the usual
// sockets, as Docker installs it. When CRI-O ends, and the containerd has its plugin, that is used.
//
// rule: M.191
func TestStrangeNodeWithDockersContainerdBesideCRIO(t *testing.T) {
	t.Parallel()
	n := newStrangeNode(t, "cri-o")
	docker := critest.New("containerd", "v1.7.0", n.Dir)
	docker.Faults = map[string]critest.Fault{critest.Every: critest.Unimplemented}
	first, _ := n.serve(docker, "docker.sock")
	second, stop := n.serve(n.runtime, "crio.sock")
	stdout, stderr, code := harness.Finish(t, withSockets(first, second, exec.Command(harness.Program(t, "evictd"), "doctor", "--status-address", "unix:"+n.Dir+"/none")))
	if code == 99 {
		t.Skip("skipped: a filesystem cannot be mounted in a namespace of a test:", stderr)
	}
	if code != 0 {
		t.Errorf("doctor ends with exit code %d: %s", code, stderr)
	}
	for _, want := range []string{"unix:/run/containerd/containerd.sock does not: ", "unknown service runtime.v1.RuntimeService", "cri-o 1.34.0 at unix:/run/crio/crio.sock answers"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("doctor prints %q, want %q", stdout, want)
		}
	}
	evictd := n.Command(sandbox.CgroupRoot(n.Group), sandbox.CRIEndpoint(""), sandbox.EvictionHard(hard64))
	d := &harness.Evictd{Process: harness.Serve(t, n.Socket(), withSockets(first, second, evictd))}
	at := func(endpoint string) func(*nodestatus.Status) bool {
		return func(s *nodestatus.Status) bool {
			return s.Runtime != nil && s.Runtime.Connected && s.Runtime.Endpoint == endpoint
		}
	}
	d.Await("CRI-O to be used", at("unix:/run/crio/crio.sock"))
	d.AwaitPods(memorySignal, n.hog, n.bystander)
	docker.Change(func(f *critest.Server) { f.Faults = nil })
	stop()
	d.Await("containerd to be used", at("unix:/run/containerd/containerd.sock"))
}

// native runs an evictd in native mode, without --force, that takes a directory for the kubelet's.
func native(n *harness.Node, kubelet string) *exec.Cmd {
	cmd := n.Command(sandbox.CgroupRoot(n.Group), sandbox.Mode("native"), sandbox.NodeFs(kubelet), sandbox.EvictionHard(hard64))
	cmd.Args = slices.DeleteFunc(cmd.Args, func(arg string) bool { return arg == sandbox.Force })
	return cmd
}

// TestStrangeNodeWithAKubeletByAnotherName has a process of root, or of another user, hold or claim what a
// kubelet does.
//
// rule: M.192
func TestStrangeNodeWithAKubeletByAnotherName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		socket string
		user   int
		named  bool // a process of another user is called kubelet
		stays  bool // nothing listens on the socket any more
		says   string
	}{
		"a kubelet inside another program":             {socket: "pod-resources/kubelet.sock", says: "listens on "},
		"a kubelet that knows device plugins alone":    {socket: "device-plugins/kubelet.sock", says: "listens on "},
		"a socket of another user":                     {socket: "pod-resources/kubelet.sock", user: 65534},
		"a socket that a kubelet has left":             {socket: "pod-resources/kubelet.sock", stays: true},
		"a process of another user, called kubelet":    {named: true},
		"the same, and its socket":                     {socket: "device-plugins/kubelet.sock", user: 65534, named: true},
		"no kubelet, and its directory with no socket": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needNoKubelet(t)
			if os.Geteuid() != 0 {
				t.Skip("skipped: a socket of root takes root")
			}
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			kubelet := filepath.Join(n.Dir, "k")
			require.NoError(t, os.Mkdir(kubelet, 0o755))
			if c.socket != "" {
				listener, err := process.ListenAs(filepath.Join(kubelet, c.socket), c.user)
				require.NoError(t, err)
				t.Cleanup(func() { listener.Close() })
				if c.stays {
					listener.SetUnlinkOnClose(false)
					listener.Close()
				}
			}
			if c.named {
				claimToBeKubelet(n)
			}
			if c.says != "" {
				stdout, stderr, code := harness.Finish(t, native(n, kubelet))
				if code != 2 || stdout != "" || !strings.Contains(stderr, "--mode native: a kubelet runs here: ") || !strings.Contains(stderr, fmt.Sprintf("pid %d, %s", os.Getpid(), c.says)) {
					t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
				}
				return
			}
			hog := n.Start("hog", sandbox.Spec{})
			d := &harness.Evictd{Process: harness.Serve(t, n.Socket(), native(n, kubelet))}
			d.AwaitPods(memorySignal, hog)
			press(hog, 32)
			d.AwaitGone(hog)
		})
	}
}

// claimToBeKubelet runs a program of another user under the name of the kubelet until the test ends.
func claimToBeKubelet(n *harness.Node) {
	n.T.Helper()
	sleep, err := exec.LookPath("sleep")
	require.NoError(n.T, err)
	program := filepath.Join(n.Dir, "kubelet")
	require.NoError(n.T, os.Symlink(sleep, program))
	cmd := exec.Command(program, "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	require.NoError(n.T, cmd.Start())
	n.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	comm := fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid)
	harness.Await(n.T, "the process to be called kubelet", func() bool { return content(n.T, comm) == "kubelet" })
}
