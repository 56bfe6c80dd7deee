package node_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evictd/evictd/internal/kubeclient"
)

// kubeconfigVariable names an administrator's kubeconfig of an API server to
// test against in place of the embedded one; it has docs/rbac.
const kubeconfigVariable = "EVICTD_TEST_KUBECONFIG"

// api is an API server as the tests reach it, and the way by which evictd does,
// which can be cut.
type api struct {
	kubernetes.Interface
	flags     []string // of evictd
	gate      *gate
	server    *daemon // nil where the test did not start it
	node      string  // name of the test's node
	namespace string
}

var clusters atomic.Int32 // used so far, for names of their own

// newAPI finds or starts an API server and makes a namespace of the test's own.
func (n *node) newAPI() *api {
	n.t.Helper()
	a := &api{node: fmt.Sprintf("node-%d-%d", os.Getpid(), clusters.Add(1))}
	a.namespace = "of-" + a.node
	kubeconfig, server := os.Getenv(kubeconfigVariable), ""
	if kubeconfig == "" {
		a.server, server = n.runEmbeddedAPI(), "unix:"+n.apiSocket()
	}
	cfg, err := kubeclient.Config(kubeconfig, server)
	if err != nil {
		n.t.Fatal(err)
	}
	if kubeconfig == "" {
		a.gate = newGate(n.t, "unix", filepath.Join(n.dir, "gate.sock"), "unix", n.apiSocket())
		a.flags = []string{"--server=unix:" + a.gate.at}
	} else {
		target, err := url.Parse(cfg.Host)
		if err != nil {
			n.t.Fatal(err)
		}
		a.gate = newGate(n.t, "tcp", "127.0.0.1:0", "tcp", target.Host)
		a.flags = []string{"--kubeconfig=" + n.agentKubeconfig(a.node, kubeconfig), "--server=" + target.Scheme + "://" + a.gate.at}
	}
	a.flags = append(a.flags, "--node-name="+a.node, "--state-dir="+filepath.Join(n.dir, "state"))
	a.Interface = kubernetes.NewForConfigOrDie(cfg)
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	if _, err := a.CoreV1().Namespaces().Create(n.t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	return a
}

// agentKubeconfig turns an administrator's kubeconfig into that of the service
// account of docs/rbac/agent.yaml with a token that is bound to the node.
func (n *node) agentKubeconfig(name, kubeconfig string) string {
	n.t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		n.t.Fatal(err)
	}
	const namespace = "evictd-system"
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + namespace + ":evictd-agent"
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
		user.ImpersonateUserExtra = map[string][]string{"authentication.kubernetes.io/node-name": {name}}
	}
	file := filepath.Join(n.dir, "agent.kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		n.t.Fatal(err)
	}
	return file
}

func (a *api) pod(t testing.TB, name string) *v1.Pod {
	t.Helper()
	pod, err := a.CoreV1().Pods(a.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// createPod runs a pod that the API server has on this node, in the cgroup that
// the kubelet would give it.
func (n *node) createPod(a *api, name string, spec podSpec, labels map[string]string) *pod {
	n.t.Helper()
	created := n.create(a, name, spec, labels)
	return n.startIn(created, n.groupOf(created), nil)
}

// create makes a pod of this node that nobody runs yet.
func (n *node) create(a *api, name string, spec podSpec, labels map[string]string) *v1.Pod {
	n.t.Helper()
	m := n.manifest(name, spec)
	m.Namespace, m.UID, m.Labels = a.namespace, "", labels
	m.Spec.NodeName, m.Spec.Containers[0].Image = a.node, "none"
	m.Spec.Priority = nil
	created, err := a.CoreV1().Pods(a.namespace).Create(n.t.Context(), m, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return created
}

// runWith protects the node with an API server around it.
func (n *node) runWith(a *api, args ...string) *daemon {
	n.t.Helper()
	return n.run(append(append([]string{longTransition}, a.flags...), args...)...)
}

// gate passes connections on while it is open.
type gate struct {
	at            string
	network, to   string
	mu            sync.Mutex
	open          bool
	passing       map[net.Conn]bool
	listener      net.Listener
	serving, busy sync.WaitGroup
}

func newGate(t testing.TB, network, at, toNetwork, to string) *gate {
	t.Helper()
	listener, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	if network == "unix" {
		if err := os.Chmod(at, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	g := &gate{at: listener.Addr().String(), network: toNetwork, to: to, open: true, passing: map[net.Conn]bool{}, listener: listener}
	g.serving.Go(g.serve)
	t.Cleanup(func() {
		g.set(false)
		listener.Close()
		g.serving.Wait()
		g.busy.Wait()
	})
	return g
}

// set opens the gate, or closes it and cuts what passes.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = open
	for conn := range g.passing {
		if !open {
			conn.Close()
		}
	}
}

func (g *gate) serve() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.busy.Go(func() { g.pass(conn) })
	}
}

func (g *gate) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial(g.network, g.to)
	if err != nil {
		return
	}
	defer to.Close()
	if !g.enter(from, to) {
		return
	}
	defer g.leave(from, to)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to)
		from.Close()
	})
	_, _ = io.Copy(to, from)
	to.Close()
	back.Wait()
}

func (g *gate) enter(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		g.passing[c] = g.open
	}
	return g.open
}

func (g *gate) leave(conns ...net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		delete(g.passing, c)
	}
}
