// Package cluster runs a whole cluster for tests: kube-apiserver with etcd, or evictd's
// embedded API, kube-controller-manager, a scheduler, and nodes of a containerd and a kubelet each,
// below a bounded cgroup of the node's own. An evictd protects the first node.
//
// A test makes objects and waits for what the API server shows. What it asserts is the
// history of the pods, which a History records from before their creation: see Rules.
package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// controllers are those of kube-controller-manager that run.
const controllers = "--controllers=deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,job-controller," +
	"disruption-controller,node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller,garbage-collector-controller,namespace-controller"

// Options say how the nodes differ from those that most tests need.
type Options struct {
	// Memory bounds the pods of a node, in bytes; 0 is 512 MiB.
	Memory int64
	// Disk has the first node keep images, writable layers, volumes and logs on a
	// filesystem of its own, of so many bytes; 0 for none.
	Disk int64
	// Embedded has evictd's API server and scheduler in place of kube-apiserver and kube-scheduler.
	Embedded bool
	// Bare is Embedded with the first node alone, and without controllers.
	Bare bool
	// Kubelet are fields of every KubeletConfiguration.
	Kubelet map[string]any
}

// inodes are those of a node's own filesystem.
const inodes = 50_000

// Cluster is a running cluster, as the test T uses it.
type Cluster struct {
	kubernetes.Interface // as the administrator
	T                    testing.TB
	API                  *apiserver.Server
	Nodes                []*Node // n1 and, where it is not bare, n2

	dir    string
	memory string // a directory on a tmpfs, as /run is: evictd keeps there what SIGKILL may not lose
}

// Node is a node of the cluster. An evictd runs on the first alone.
type Node struct {
	*node.Node
	Name string

	identity string // of the kubelet
	kubelet  *program
	fields   map[string]any // of Options.Kubelet
}

// Start runs a cluster until the test ends, and returns once its nodes are Ready. It skips
// the test where that cannot be.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{T: t}
	first := node.Options{Memory: o.Memory}
	if o.Disk > 0 {
		disk := node.Disk(t, node.Ext4, o.Disk, inodes)
		first.Root, first.Kubelet, first.Logs = filepath.Join(disk, "containerd"), filepath.Join(disk, "kubelet"), filepath.Join(disk, "logs")
	}
	c.Nodes = []*Node{{Name: apiserver.NodeName, identity: apiserver.Node, Node: node.Start(t, node.BesideKubelet, first)}}
	if !o.Bare {
		c.Nodes = append(c.Nodes, &Node{Name: apiserver.OtherNodeName, identity: apiserver.OtherNode, Node: node.Start(t, node.BesideKubelet, node.Options{Memory: o.Memory})})
	}
	c.dir = c.Nodes[0].Dir()
	var err error
	if c.memory, err = os.MkdirTemp("/dev/shm", "evictd"); err != nil {
		t.Skip("skipped: needs a tmpfs at /dev/shm:", err)
	}
	t.Cleanup(func() { os.RemoveAll(c.memory) })
	o.Embedded = o.Embedded || o.Bare
	c.startServer(o.Embedded)
	if !o.Bare {
		c.runProgram("kube-controller-manager", controllers, "--cert-dir="+c.dir)
	}
	if o.Embedded {
		harness.Scheduler(t, filepath.Join(harness.Dir(t), "scheduler.sock"), c.API.Args(apiserver.Kube)...)
	} else {
		c.grant()
		c.runProgram("kube-scheduler", "--authentication-skip-lookup")
	}
	for _, n := range c.Nodes {
		n.fields = o.Kubelet
		c.startKubelet(n)
	}
	for _, n := range c.Nodes {
		c.Await("node "+n.Name+" to be ready", func() bool { return c.isReady(n) })
	}
	return c
}

// runProgram runs a program of Kubernetes that is a client of the API server.
func (c *Cluster) runProgram(name string, more ...string) {
	c.T.Helper()
	args := append([]string{"--kubeconfig=" + c.API.Kubeconfig(apiserver.Admin), "--leader-elect=false", "--secure-port=0"}, more...)
	path := c.program(name)
	c.run(name, func() *exec.Cmd { return exec.Command(path, args...) })
}

// With is the cluster as another test uses it, while the test that started it runs.
func (c *Cluster) With(t testing.TB) *Cluster {
	with := *c
	with.T, with.Nodes = t, slices.Clone(c.Nodes)
	for i, n := range with.Nodes {
		copied := *n
		copied.Node = n.Node.With(t)
		with.Nodes[i] = &copied
	}
	return &with
}

// Await is wait.Until.
func (c *Cluster) Await(what string, holds func() bool) {
	c.T.Helper()
	wait.Until(c.T, what, holds)
}

// must ends the test on an error.
func (c *Cluster) must(err error) {
	c.T.Helper()
	if err != nil {
		c.T.Fatal(err)
	}
}

func (c *Cluster) startServer(embedded bool) {
	c.T.Helper()
	// A watch of pods or nodes continues where it was also when the server was killed: its cache
	// would have the objects of its start alone.
	start := func() (*apiserver.Server, error) {
		return apiserver.NewKubeAPIServer("--watch-cache-sizes=pods#0,nodes#0")
	}
	if embedded {
		start = func() (*apiserver.Server, error) {
			return apiserver.NewEmbedded(harness.Program(c.T, "evictd-apiserver"))
		}
	}
	server, err := start()
	if unavailable, is := errors.AsType[*apiserver.UnavailableError](err); is {
		c.T.Skip("skipped:", unavailable)
	}
	c.must(err)
	c.API = server
	c.T.Cleanup(func() {
		if err := server.Stop(); err != nil {
			c.T.Error(err)
		}
	})
	c.Interface, err = server.Client(apiserver.Admin)
	c.must(err)
}

// StartServer starts the API server, which was killed.
func (c *Cluster) StartServer() {
	c.T.Helper()
	c.must(c.API.Start())
}

// grant gives evictd's agent the rights of deploy/rbac.
func (c *Cluster) grant() {
	c.T.Helper()
	root, err := sandbox.SourceRoot()
	c.must(err)
	c.kubectl(nil, "apply", "--server-side", "--filename="+filepath.Join(root, "deploy/rbac"))
}

// Apply makes objects of a manifest, or changes them.
func (c *Cluster) Apply(manifest []byte) {
	c.T.Helper()
	c.kubectl(manifest, "apply", "--server-side", "--force-conflicts", "--filename=-")
}

// kubectl runs kubectl as the administrator.
func (c *Cluster) kubectl(stdin []byte, args ...string) {
	c.T.Helper()
	kubectl := exec.CommandContext(c.T.Context(), c.program("kubectl"), append([]string{"--kubeconfig=" + c.API.Kubeconfig(apiserver.Admin)}, args...)...)
	kubectl.Stdin = bytes.NewReader(stdin)
	if out, err := kubectl.CombinedOutput(); err != nil {
		c.T.Fatalf("%s: %v\n%s", kubectl, err, out)
	}
}

// program is the path of a program of Kubernetes.
func (c *Cluster) program(name string) string {
	c.T.Helper()
	path, err := apiserver.Program(name)
	if unavailable, is := errors.AsType[*apiserver.UnavailableError](err); is {
		c.T.Skip("skipped:", unavailable)
	}
	c.must(err)
	return path
}

// program is a process of the cluster.
type program struct {
	command func() *exec.Cmd
	log     string // file
	process *process.Process
}

// start starts the program, again where it was killed.
func (p *program) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	p.process, err = process.Start(cmd)
	return err
}

// run runs a program until the test ends, and shows the end of its log where that failed.
func (c *Cluster) run(name string, command func() *exec.Cmd) *program {
	c.T.Helper()
	p := &program{command: command, log: filepath.Join(c.dir, name+".log")}
	c.must(p.start())
	c.T.Cleanup(func() {
		if !p.process.Running() {
			c.T.Errorf("%s has ended by itself", name)
		}
		p.process.Kill()
		if text, err := os.ReadFile(p.log); c.T.Failed() && err == nil {
			c.T.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-shownLog):])
		}
	})
	return p
}

// shownLog is how much of a log is shown, in bytes.
const shownLog = 6000

func (c *Cluster) isReady(n *Node) bool {
	object, err := c.CoreV1().Nodes().Get(c.T.Context(), n.Name, metav1.GetOptions{})
	return err == nil && slices.ContainsFunc(object.Status.Conditions, func(condition v1.NodeCondition) bool {
		return condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue
	})
}

// Evictd protects the first node beside its kubelet, with the flags, and returns once it
// knows the pods of the API server. EVICTD_TRANSITION is its pressure transition period, 5s by default.
func (c *Cluster) Evictd(flags ...string) *node.Evictd {
	c.T.Helper()
	n := c.Nodes[0]
	credentials := kube.AgentKubeconfig(c.T, n.Dir(), n.Name, c.API.Kubeconfig(apiserver.Admin))
	return n.Evictd(append([]string{
		sandbox.Mode("backstop"), sandbox.Kubeconfig(credentials), sandbox.NodeName(n.Name), sandbox.NodeFs(n.Kubelet), sandbox.RuntimeDir(c.memory),
		sandbox.Housekeeping("1s"), sandbox.Transition(cmp.Or(os.Getenv("EVICTD_TRANSITION"), "5s")),
	}, flags...)...)
}

// RuntimeDir is the directory of what an evictd keeps for the next one while the first node runs.
func (c *Cluster) RuntimeDir() string { return c.memory }

// AwaitNoTaint waits until the first node, which pods prefer, has no taint of an earlier shortage.
func (c *Cluster) AwaitNoTaint() {
	c.T.Helper()
	c.Await("the first node to have no taint", func() bool {
		first, err := c.CoreV1().Nodes().Get(c.T.Context(), c.Nodes[0].Name, metav1.GetOptions{})
		return err == nil && len(first.Spec.Taints) == 0
	})
}

// Pause stops the API server until the function returns.
func (c *Cluster) Pause(during func()) {
	c.T.Helper()
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(c.API.Pid(), s); err != nil {
			c.T.Fatalf("signal %v to the API server: %v", s, err)
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	during()
}

// Namespace makes a namespace, and empties it at the end of the test.
func (c *Cluster) Namespace(name string) string {
	c.T.Helper()
	_, err := c.CoreV1().Namespaces().Create(c.T.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	c.must(err)
	return name
}

// on is the node of a name; nil for none of the cluster.
func (c *Cluster) on(name string) *Node {
	at := slices.IndexFunc(c.Nodes, func(n *Node) bool { return n.Name == name })
	if at < 0 {
		return nil
	}
	return c.Nodes[at]
}

// Runs says whether a process of a pod runs on its node, that of its sandbox aside.
func (c *Cluster) Runs(pod *v1.Pod) bool {
	n := c.on(pod.Spec.NodeName)
	return n != nil && n.Runs(pod)
}

// Pod is a pod whose container takes orders.
func (c *Cluster) Pod(pod *v1.Pod) *node.Pod {
	c.T.Helper()
	n := c.on(pod.Spec.NodeName)
	if n == nil {
		c.T.Fatalf("pod %s is on no node of the cluster: %q", pod.Name, pod.Spec.NodeName)
	}
	return n.Attach(pod, orders)
}

// name names an object of the API in faults.
func name(object metav1.Object) string {
	return fmt.Sprintf("%s (%.8s)", object.GetName(), object.GetUID())
}
