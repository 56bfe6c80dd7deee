package node_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// node is a bounded cgroup that stands for a node.
type node struct {
	t       testing.TB
	cgroups *cgroup.System
	group   string // path of the cgroup
	dir     string // of the node's files, readable by everybody
	uids    int
}

// podsCgroup is the group of the pods below the node's.
const podsCgroup = "kubepods"

var nodes atomic.Int32 // made so far, for names of their own

// newNode makes a node of so much memory. Its pids are bounded in any case.
func newNode(t testing.TB, memory, pids int64) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: making cgroups needs root")
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Skip("skipped: no cgroups to use:", err)
	}
	n := &node{t: t, cgroups: cgroups, group: fmt.Sprintf("/evictd-node-test-%d-%d", os.Getpid(), nodes.Add(1))}
	if err := cgroups.Create(n.group, cgroup.Limits{Memory: stats.Known(memory), PIDs: stats.Known(pids)}); err != nil {
		_ = cgroups.Delete(n.group)
		t.Skip("skipped: cgroups with limits of memory and pids cannot be made:", err)
	}
	t.Cleanup(n.remove)
	if n.dir, err = os.MkdirTemp("", "evictd-node-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(n.dir) })
	if err := errors.Join(os.Chmod(n.dir, 0o777), os.Mkdir(n.manifests(), 0o755)); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) manifests() string  { return filepath.Join(n.dir, "manifests") }
func (n *node) statusFile() string { return filepath.Join(n.dir, "node.yaml") }

// remove ends whatever still runs in the node and takes its cgroup away.
func (n *node) remove() {
	await(n.t, "the node's cgroup to be removed", func() bool {
		for _, pid := range n.processes(n.group) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return n.cgroups.Delete(n.group) == nil
	})
}

// processes are those in a cgroup and below it; none where there is no such
// group.
func (n *node) processes(group string) []int {
	opened, err := n.cgroups.Open(group)
	if err != nil {
		return nil
	}
	defer opened.Close()
	pids, _ := opened.AppendProcesses(nil)
	return pids
}

// podSpec is what a pod asks for; zero values ask for nothing.
type podSpec struct {
	request, limit string // memory
	priority       int32
	grace          int64 // seconds
	emptyDirs      map[string]string
	annotations    map[string]string
}

// pod is a pod of one container, c, and its process.
type pod struct {
	*v1.Pod
	n       *node
	group   string // its cgroup
	process *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
	ended   chan struct{} // closed when the process has ended
	state   *os.ProcessState
}

// manifest describes a pod. Uids are as the kubelet's.
func (n *node) manifest(name string, spec podSpec) *v1.Pod {
	n.uids++
	m := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", Annotations: spec.annotations,
			UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n.uids)),
		},
		Spec: v1.PodSpec{
			Priority:                      &spec.priority,
			TerminationGracePeriodSeconds: &spec.grace,
			Containers:                    []v1.Container{{Name: "c"}},
		},
	}
	if spec.grace == 0 {
		m.Spec.TerminationGracePeriodSeconds = nil
	}
	resources := &m.Spec.Containers[0].Resources
	if spec.request != "" {
		resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(spec.request)}
	}
	if spec.limit != "" { // of everything, so that the pod can be Guaranteed
		resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(spec.limit), v1.ResourceCPU: resource.MustParse("1")}
	}
	for name, size := range spec.emptyDirs {
		source := &v1.EmptyDirVolumeSource{}
		if size != "" {
			limit := resource.MustParse(size)
			source.SizeLimit = &limit
		}
		m.Spec.Volumes = append(m.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: source}})
	}
	return m
}

// start runs a pod in the cgroup that the kubelet would give it, and hands in
// its manifest.
func (n *node) start(name string, spec podSpec) *pod {
	n.t.Helper()
	m := n.manifest(name, spec)
	p := n.startIn(m, n.groupOf(m), nil)
	n.write(m)
	return p
}

// groupOf is the cgroup that the kubelet would give a pod.
func (n *node) groupOf(m *v1.Pod) string {
	return cgroup.PodsAt(filepath.Join(n.group, podsCgroup)).Pod(string(m.UID), eviction.QOSClass(m))
}

// startIn runs a pod in a cgroup. Nil credentials are the test's own.
func (n *node) startIn(m *v1.Pod, group string, as *syscall.Credential) *pod {
	n.t.Helper()
	p := &pod{Pod: m, n: n, group: group, process: exec.Command(podProgram), ended: make(chan struct{})}
	p.process.Env = append(os.Environ(), roleVariable+"=1")
	p.process.Stderr = os.Stderr
	p.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as}
	var err error
	if p.orders, err = p.process.StdinPipe(); err != nil {
		n.t.Fatal(err)
	}
	out, err := p.process.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	p.answers = bufio.NewScanner(out)
	container := filepath.Join(group, "c")
	if err := errors.Join(n.cgroups.Create(container, cgroup.Limits{}), p.process.Start()); err != nil {
		n.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.state, _ = p.process.Process.Wait()
	}()
	n.t.Cleanup(p.end)
	if err := n.cgroups.Add(container, p.process.Process.Pid); err != nil {
		n.t.Fatal(err)
	}
	return p
}

// write hands a manifest in, whole at once.
func (n *node) write(m *v1.Pod) {
	n.t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		n.t.Fatal(err)
	}
	n.writeFile(m.Name+".json", text)
}

func (n *node) writeFile(name string, text []byte) {
	n.t.Helper()
	draft := filepath.Join(n.manifests(), "."+name)
	if err := errors.Join(os.WriteFile(draft, text, 0o644), os.Rename(draft, filepath.Join(n.manifests(), name))); err != nil {
		n.t.Fatal(err)
	}
}

// tell gives an order and waits for nothing.
func (p *pod) tell(order string, args ...any) {
	p.n.t.Helper()
	if _, err := fmt.Fprintf(p.orders, order+"\n", args...); err != nil {
		p.n.t.Fatalf("tell pod %s to %s: %v", p.Name, order, err)
	}
}

// do gives an order and waits until it was carried out.
func (p *pod) do(order string, args ...any) {
	p.n.t.Helper()
	p.tell(order, args...)
	if !p.answers.Scan() || p.answers.Text() != "ok" {
		p.n.t.Fatalf("pod %s, %s: %s %v", p.Name, order, p.answers.Text(), p.answers.Err())
	}
}

func (p *pod) pid() int { return p.process.Process.Pid }

// lives says whether the pod's own process runs.
func (p *pod) lives() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end waits for the process, which ends with its input if not before.
func (p *pod) end() {
	p.orders.Close()
	await(p.n.t, "pod "+p.Name+" to end", func() bool {
		if p.lives() {
			_ = p.process.Process.Kill()
		}
		return !p.lives()
	})
}

// mustDie waits for the end of the pod and of everything it started.
func (p *pod) mustDie() {
	p.n.t.Helper()
	await(p.n.t, "pod "+p.Name+" to die", func() bool { return !p.lives() && len(p.n.processes(p.group)) == 0 })
}

// mustLive fails the test unless all of the pods do.
func mustLive(t testing.TB, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		if !p.lives() {
			t.Errorf("pod %s died: %v", p.Name, p.state)
		}
	}
}
