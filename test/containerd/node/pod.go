package node

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/harness"
)

// Pod is a pod that runs in a node.
type Pod struct {
	*v1.Pod
	Group      string // its cgroup
	Sandbox    string // id of its sandbox; "" where a kubelet runs the pod
	Containers []*Container

	n      *Node
	prefix string // of the sockets that its containers take orders from
}

// Container is a container of a pod.
type Container struct {
	ID    string
	Name  string
	Group string // its cgroup

	pod *Pod
}

// Pod runs a pod of one container, c.
func (n *Node) Pod(name string, s Spec) *Pod {
	n.t.Helper()
	return n.Run(s.manifest(name))
}

// Run runs a pod as the kubelet does: its cgroup, its sandbox, its sidecars and
// then its other containers; init containers that are no sidecars are left out. A
// namespace and a uid are given to a pod that has none. Containers without an
// image run Workload.
func (n *Node) Run(m *v1.Pod) *Pod {
	n.t.Helper()
	n.uids++
	if m.UID == "" {
		m.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n.uids))
	}
	if m.Namespace == "" {
		m.Namespace = v1.NamespaceDefault
	}
	p := &Pod{Pod: m, n: n, prefix: n.Group, Group: n.podGroup(m)}
	require.NoError(n.t, n.cgroups.Create(p.Group, podLimits(m)))
	config := p.sandboxConfig()
	require.NoError(n.t, os.MkdirAll(config.LogDirectory, 0o755))
	p.Sandbox = Call(n, n.Runtime.RunPodSandbox, &runtime.RunPodSandboxRequest{Config: config}).PodSandboxId
	for _, c := range m.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			p.Start(&c, 0)
		}
	}
	for _, c := range m.Spec.Containers {
		p.Start(&c, 0)
	}
	return p
}

// Attach is a pod that a kubelet runs in the node, or its mirror. The variable ORDERS of its
// containers is @prefix/UID/NAME; the uid of a static pod is its config hash.
func (n *Node) Attach(m *v1.Pod, prefix string) *Pod {
	if hash := m.Annotations["kubernetes.io/config.hash"]; hash != "" {
		m = m.DeepCopy()
		m.UID = types.UID(hash)
	}
	p := &Pod{Pod: m, n: n, prefix: prefix, Group: n.podGroup(m)}
	for _, c := range slices.Concat(m.Status.ContainerStatuses, m.Status.InitContainerStatuses) {
		_, id, _ := strings.Cut(c.ContainerID, "://")
		p.Containers = append(p.Containers, &Container{ID: id, Name: c.Name, Group: filepath.Join(p.Group, containerGroup(id)), pod: p})
	}
	return p
}

// containerGroup is the name of the cgroup that containerd gives a container.
func containerGroup(id string) string {
	if harness.Driver == sandbox.Systemd {
		return "cri-containerd-" + id + ".scope"
	}
	return id
}

func (n *Node) podGroup(m *v1.Pod) string {
	return cgroup.PodsAt(filepath.Join(n.Group, n.PodsGroup())).Pod(string(m.UID), podspec.QOSClass(m))
}

// Runs says whether a process of a pod that a kubelet runs in the node runs, its sandbox
// aside.
func (n *Node) Runs(m *v1.Pod) bool { return n.Attach(m, "").Lives() }

// Start creates and starts a container of a running pod, for the attempt-th time
// after the first.
func (p *Pod) Start(c *v1.Container, attempt int) *Container {
	p.n.t.Helper()
	config := p.containerConfig(c, attempt)
	logs := filepath.Dir(filepath.Join(p.logDirectory(), config.LogPath))
	require.NoError(p.n.t, os.MkdirAll(logs, 0o755))
	for _, mount := range config.Mounts {
		require.NoError(p.n.t, os.MkdirAll(mount.HostPath, 0o777))
	}
	id := Call(p.n, p.n.Runtime.CreateContainer, &runtime.CreateContainerRequest{
		PodSandboxId: p.Sandbox, Config: config, SandboxConfig: p.sandboxConfig(),
	}).ContainerId
	Call(p.n, p.n.Runtime.StartContainer, &runtime.StartContainerRequest{ContainerId: id})
	started := &Container{ID: id, Name: c.Name, Group: filepath.Join(p.Group, containerGroup(id)), pod: p}
	p.Containers = append(p.Containers, started)
	return started
}

// Do gives an order, see cmd/workload, to the pod's first container and waits
// until it was carried out.
func (p *Pod) Do(order string, args ...any) {
	p.n.t.Helper()
	p.Containers[0].Do(order, args...)
}

// Do gives the container an order, see cmd/workload, and waits until it was
// carried out.
func (c *Container) Do(order string, args ...any) {
	n := c.pod.n
	n.t.Helper()
	connection, line := c.order(order, args)
	defer connection.Close()
	require.NoError(n.t, connection.SetDeadline(time.Now().Add(wait.Limit)))
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if answer != "ok\n" {
		n.t.Fatalf("pod %s, %s: %s %v", c.pod.Pod.Name, line, answer, err)
	}
}

// Send sends the container an order and does not wait for its execution.
func (c *Container) Send(order string, args ...any) {
	c.pod.n.t.Helper()
	connection, _ := c.order(order, args)
	connection.Close()
}

func (c *Container) order(order string, args []any) (connection net.Conn, line string) {
	n := c.pod.n
	n.t.Helper()
	line = strings.TrimSpace(fmt.Sprintln(append([]any{order}, args...)...))
	Await(n.t, "container "+c.Name+" of pod "+c.pod.Pod.Name+" to take orders", func() (connected bool) {
		var err error
		connection, err = net.Dial("unix", c.pod.orders(c.Name))
		return err == nil
	})
	fmt.Fprintln(connection, line)
	return connection, line
}

// orders is the abstract socket that a container takes orders from. Pods are in
// the network of the host.
func (p *Pod) orders(container string) string {
	return fmt.Sprintf("@%s/%s/%s", p.prefix, p.UID, container)
}

// Lives says whether a process of the container runs. It asks the kernel, not
// containerd.
func (c *Container) Lives() bool { return len(c.pod.n.processes(c.Group)) > 0 }

// Lives says whether any container of the pod, the sandbox aside, has a process
// that runs.
func (p *Pod) Lives() bool {
	for _, c := range p.Containers {
		if c.Lives() {
			return true
		}
	}
	return false
}

// AwaitEnd waits until no process of the pod runs, its sandbox's neither. It asks
// the kernel, not containerd.
func (p *Pod) AwaitEnd() {
	p.n.t.Helper()
	Await(p.n.t, "pod "+p.Name+" to end", func() bool { return len(p.n.processes(p.Group)) == 0 })
}

// AwaitExit waits until containerd knows that the container has ended, and
// returns how.
func (c *Container) AwaitExit() *runtime.ContainerStatus {
	n := c.pod.n
	n.t.Helper()
	var status *runtime.ContainerStatus
	Await(n.t, "container "+c.Name+" of pod "+c.pod.Pod.Name+" to exit", func() bool {
		status = Call(n, n.Runtime.ContainerStatus, &runtime.ContainerStatusRequest{ContainerId: c.ID}).Status
		return status.State == runtime.ContainerState_CONTAINER_EXITED
	})
	return status
}

// Stop stops the containers, each with so many seconds of grace, and the sandbox.
func (p *Pod) Stop(grace int64) {
	p.n.t.Helper()
	for _, c := range p.Containers {
		Call(p.n, p.n.Runtime.StopContainer, &runtime.StopContainerRequest{ContainerId: c.ID, Timeout: grace})
	}
	Call(p.n, p.n.Runtime.StopPodSandbox, &runtime.StopPodSandboxRequest{PodSandboxId: p.Sandbox})
}

// Remove ends a pod at once and removes its sandbox, containers, logs, volumes and
// cgroup, as the kubelet does once a pod is deleted.
func (p *Pod) Remove() {
	p.n.t.Helper()
	p.Stop(0)
	Call(p.n, p.n.Runtime.RemovePodSandbox, &runtime.RemovePodSandboxRequest{PodSandboxId: p.Sandbox})
	for _, dir := range []string{p.logDirectory(), p.directory()} {
		require.NoError(p.n.t, os.RemoveAll(dir))
	}
	harness.RemoveCgroup(p.n.t, p.Group)
}
