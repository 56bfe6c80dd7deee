package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cgroup/cgrouptest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
)

// Node is a node of a test. It is removed with the test, and what runs in it is killed.
type Node struct {
	*sandbox.Node
	T testing.TB
}

// uids counts the pods of all tests, so that no test's are taken for another's.
var uids atomic.Int32

// Driver is the kubelet's cgroup driver that the nodes of tests have.
var Driver = sandbox.Driver(os.Getenv(sandbox.DriverVariable))

// NewNode makes a node of so much memory, bytes, and so many process ids. It skips the
// test where that cannot be.
func NewNode(t testing.TB, memory, pids int64) *Node {
	t.Helper()
	n := &Node{T: t}
	dir, cgroups := Dir(t), cgrouptest.System(t)
	if err := os.Chmod(dir, 0o777); err != nil { // an evictd of another user writes there
		t.Fatal(err)
	}
	var err error
	n.Node, err = sandbox.NewNode(cgroups, Driver, CgroupOf(dir), dir, cgroup.Limits{Memory: stats.Known(memory), PIDs: stats.Known(pids)})
	if err != nil {
		t.Skip("skipped: cgroups with limits of memory and pids cannot be made:", err)
	}
	n.RunDir = inMemory(t)
	return n
}

// inMemory is a directory on a tmpfs, "" where /dev/shm is none.
func inMemory(t testing.TB) string {
	t.Helper()
	var on syscall.Statfs_t
	dir, err := os.MkdirTemp("/dev/shm", "evictd-test-")
	if err != nil {
		return ""
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if syscall.Statfs(dir, &on) != nil || on.Type != 0x01021994 || os.Chmod(dir, 0o777) != nil {
		return ""
	}
	return dir
}

// Clear kills the processes in a cgroup of the node and removes it.
func (n *Node) Clear(group string) {
	n.T.Helper()
	ctx, cancel := limited()
	defer cancel()
	if err := n.Node.Clear(ctx, group); err != nil {
		n.T.Errorf("remove cgroup %s: %v", group, err)
	}
}

// Make makes a cgroup, or sets the limits of one.
func (n *Node) Make(group string, limits cgroup.Limits) {
	n.T.Helper()
	require.NoError(n.T, n.Node.Make(group, limits))
}

// Delete removes a cgroup of the node, once it has no process.
func (n *Node) Delete(group string) {
	n.T.Helper()
	Await(n.T, "cgroup "+group+" to be removed", func() bool { return n.Node.Delete(group) == nil })
}

// Open opens a cgroup, which is closed at the end of the test.
func (n *Node) Open(group string) *cgroup.Group {
	n.T.Helper()
	g, err := n.Cgroups.Open(group)
	require.NoError(n.T, err)
	n.T.Cleanup(func() { g.Close() })
	return g
}

// Memory is that of a cgroup.
func (n *Node) Memory(group string) (m stats.Memory) {
	n.T.Helper()
	require.NoError(n.T, n.Open(group).Memory(&m))
	return m
}

// OOMKills is how many processes the kernel's OOM killer killed in a cgroup.
func (n *Node) OOMKills(group string) int64 {
	n.T.Helper()
	kills, err := n.Cgroups.OOMKills(group)
	require.NoError(n.T, err)
	return kills.Or(0)
}

// Manifest describes a pod of one container, c, with a uid of its own.
func (n *Node) Manifest(name string, spec sandbox.Spec) *v1.Pod {
	return spec.Manifest(name, sandbox.UID(int(uids.Add(1))))
}

// Write puts the manifest of a pod in place, or replaces it.
func (n *Node) Write(m *v1.Pod) {
	n.T.Helper()
	require.NoError(n.T, n.WriteManifest(m))
}

// WriteFile puts a file among the manifests, or replaces it.
func (n *Node) WriteFile(name, text string) {
	n.T.Helper()
	require.NoError(n.T, n.Node.WriteFile(name, []byte(text)))
}

// Start runs a pod in the cgroup that the kubelet gives it, and writes its manifest.
func (n *Node) Start(name string, spec sandbox.Spec) *Pod {
	n.T.Helper()
	m := n.Manifest(name, spec)
	p := n.StartIn(m, n.PodGroup(m), nil)
	n.Write(m)
	return p
}

// StartIn runs a pod in a cgroup as a user; nil is the test's own.
func (n *Node) StartIn(m *v1.Pod, group string, as *syscall.Credential) *Pod {
	n.T.Helper()
	Base(n.T)
	program, err := podProgram()
	require.NoError(n.T, err)
	started, err := n.Node.Start(group, as, program)
	require.NoError(n.T, err)
	p := &Pod{Pod: m, Group: group, Node: n, workload: started}
	n.T.Cleanup(p.End)
	return p
}

// Command is an evictd for the node, whose flags say what it measures. Flags that follow
// win over those that every test has.
func (n *Node) Command(flags ...string) *exec.Cmd {
	n.T.Helper()
	return exec.Command(Program(n.T, "evictd"), n.Node.Evictd(flags...)...)
}

// Evictd protects the node, measured by its cgroup, until the test ends.
func (n *Node) Evictd(flags ...string) *Evictd {
	n.T.Helper()
	return n.Protect(n.Command(append([]string{sandbox.CgroupRoot(n.Group)}, flags...)...), nil)
}

// Protect runs an evictd of Command as a user; nil is the test's own.
func (n *Node) Protect(cmd *exec.Cmd, as *syscall.Credential) *Evictd {
	n.T.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	return &Evictd{Serve(n.T, n.Socket(), cmd)}
}

// Pod is a pod of a test and its process.
type Pod struct {
	*v1.Pod
	Group string // its cgroup

	Node *Node

	workload *sandbox.Pod
}

// Send sends an order, see package workload, and does not wait for its execution.
func (p *Pod) Send(order string, args ...any) {
	p.Node.T.Helper()
	if err := p.workload.Send(fmt.Sprintf(order, args...)); err != nil {
		p.Node.T.Fatalf("pod %s, %s: %v", p.Name, order, err)
	}
}

// Do gives an order and waits until it was carried out.
func (p *Pod) Do(order string, args ...any) {
	p.Node.T.Helper()
	if err := p.workload.Do(fmt.Sprintf(order, args...)); err != nil {
		p.Node.T.Fatalf("pod %s, %s: %v", p.Name, order, err)
	}
}

// Container is the cgroup of the pod's container.
func (p *Pod) Container() string { return p.Node.Container(p.Group) }

// PID is the id of the pod's first process.
func (p *Pod) PID() int { return p.workload.PID() }

// Runs says whether the pod's first process does.
func (p *Pod) Runs() bool { return p.workload.Running() }

// Ended is closed at the end of the pod's first process.
func (p *Pod) Ended() <-chan struct{} { return p.workload.Ended() }

// State is how the pod's first process ended. It waits for that.
func (p *Pod) State() *os.ProcessState {
	_, state := p.workload.End()
	return state
}

// End kills the pod's first process, where it still runs.
func (p *Pod) End() { p.workload.Close() }

// AwaitEnd waits for the end of the pod and of all processes that it started.
func (p *Pod) AwaitEnd() {
	p.Node.T.Helper()
	Await(p.Node.T, "pod "+p.Name+" to end", func() bool { return !p.Runs() && len(p.Node.Processes(p.Group)) == 0 })
}

// MustHaveEndedBy fails the test unless a signal ended the pod's first process.
func (p *Pod) MustHaveEndedBy(signal syscall.Signal) {
	p.Node.T.Helper()
	if status := p.State().Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != signal {
		p.Node.T.Errorf("pod %s: %v, want the end by %v", p.Name, p.State(), signal)
	}
}

// Volume makes the directory of one of the pod's emptyDirs, where a kubelet that keeps
// its files in a directory does.
func (p *Pod) Volume(kubelet, name string) string {
	p.Node.T.Helper()
	dir := filepath.Join(kubelet, "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", name)
	require.NoError(p.Node.T, os.MkdirAll(dir, 0o755))
	return dir
}

// MustRun fails the test unless all of the pods run.
func MustRun(t testing.TB, pods ...*Pod) {
	t.Helper()
	for _, p := range pods {
		if !p.Runs() {
			t.Errorf("pod %s has ended: %v", p.Name, p.State())
		}
	}
}

// names are those of pods as evictd writes them.
func names(pods []*Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Namespace+"/"+p.Name)
	}
	return strings.Join(all, ", ")
}
