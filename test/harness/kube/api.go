// Package kube has the API servers of tests, as the tests and evictd reach them.
package kube

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/harness"
)

// KubeconfigVariable names an administrator's kubeconfig of an API server to test
// against in place of the embedded one; it has deploy/rbac.
const KubeconfigVariable = "EVICTD_TEST_KUBECONFIG"

// API is an API server as a test reaches it, and the way by which evictd does, which the
// test can cut.
type API struct {
	kubernetes.Interface
	Server    string           // flag by which a program reaches the API server
	Flags     []string         // by which an evictd of the node does, among them Server
	Gate      *harness.Gate    // on that way
	Process   *harness.Process // nil where the test did not start it
	Node      string           // name of the test's node
	Namespace string           // of the test's own
}

// New finds or starts an API server for a node and makes a namespace of the test's own.
func New(n *harness.Node) *API {
	n.T.Helper()
	name := harness.CgroupOf(n.Dir)[1:]
	a := &API{Node: name, Namespace: "of-" + name}
	kubeconfig, server := os.Getenv(KubeconfigVariable), ""
	if kubeconfig == "" {
		a.Process, server = n.APIServer(), "unix:"+n.APISocket()
	}
	cfg, err := kubeclient.Config(kubeconfig, server)
	require.NoError(n.T, err)
	if kubeconfig == "" {
		a.Gate = harness.NewGate(n.T, "unix", filepath.Join(n.Dir, "gate.sock"), n.APISocket())
		a.Server = sandbox.Server("unix:" + a.Gate.Address)
	} else {
		target, err := url.Parse(cfg.Host)
		require.NoError(n.T, err)
		a.Gate = harness.NewGate(n.T, "tcp", "127.0.0.1:0", target.Host)
		a.Server = sandbox.Server(target.Scheme + "://" + a.Gate.Address)
		a.Flags = append(a.Flags, sandbox.Kubeconfig(AgentKubeconfig(n.T, n.Dir, name, kubeconfig)))
	}
	a.Flags = append(a.Flags, a.Server, sandbox.NodeName(name))
	a.Interface = kubernetes.NewForConfigOrDie(cfg)
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Namespace}}
	if _, err := a.CoreV1().Namespaces().Create(n.T.Context(), namespace, metav1.CreateOptions{}); err != nil {
		n.T.Fatal(err)
	}
	return a
}

// AgentKubeconfig turns an administrator's kubeconfig into that of the service account of
// deploy/rbac/agent.yaml with a token that is bound to a node, and writes it to a directory.
func AgentKubeconfig(t testing.TB, dir, node, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	const namespace = "evictd-system"
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + namespace + ":evictd-agent"
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
		user.ImpersonateUserExtra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	file := filepath.Join(dir, "agent.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}

// Create makes a pod of a node in the API, without a process.
func (a *API) Create(n *harness.Node, name string, spec sandbox.Spec, labels map[string]string) *v1.Pod {
	n.T.Helper()
	m := n.Manifest(name, spec)
	m.Namespace, m.UID, m.Labels = a.Namespace, "", labels
	m.Spec.NodeName, m.Spec.Containers[0].Image = a.Node, "none"
	m.Spec.Priority = nil
	created, err := a.CoreV1().Pods(a.Namespace).Create(n.T.Context(), m, metav1.CreateOptions{})
	require.NoError(n.T, err)
	return created
}

// CreatePod makes a pod of a node in the API and runs it in the cgroup that the kubelet
// gives it.
func (a *API) CreatePod(n *harness.Node, name string, spec sandbox.Spec, labels map[string]string) *harness.Pod {
	n.T.Helper()
	created := a.Create(n, name, spec, labels)
	return n.StartIn(created, n.PodGroup(created), nil)
}

// Pod is a pod of the test's namespace as it is now.
func (a *API) Pod(t testing.TB, name string) *v1.Pod {
	t.Helper()
	pod, err := a.CoreV1().Pods(a.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return pod
}

// Delete deletes a pod of the test's namespace at once.
func (a *API) Delete(t testing.TB, name string) {
	t.Helper()
	require.NoError(t, a.CoreV1().Pods(a.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

// Evicted says whether the API shows that a pod was evicted.
func Evicted(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "Evicted"
}

// AwaitEvicted waits until the API shows that a pod was evicted.
func (a *API) AwaitEvicted(t testing.TB, name string) (pod *v1.Pod) {
	t.Helper()
	harness.Await(t, "the API to show that pod "+name+" was evicted", func() bool {
		pod = a.Pod(t, name)
		return Evicted(pod)
	})
	return pod
}

// AwaitNode waits, by a watch, until the Node is as described.
func (a *API) AwaitNode(t testing.TB, what string, holds func(*v1.Node) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	for ctx.Err() == nil {
		watch, err := a.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + a.Node})
		if err != nil {
			continue
		}
		for event := range watch.ResultChan() {
			if node, ok := event.Object.(*v1.Node); ok && holds(node) {
				watch.Stop()
				return
			}
		}
	}
	t.Fatalf("waited %v for the Node to show %s", wait.Limit, what)
}

// AwaitCondition waits until the Node has a condition as true or as false, and its taint
// with it.
func (a *API) AwaitCondition(t testing.TB, condition v1.NodeConditionType, taint string, raised bool) {
	t.Helper()
	a.AwaitNode(t, fmt.Sprintf("%s and its taint: %t", condition, raised), func(node *v1.Node) bool { return harness.Shows(node, condition, taint, raised) })
}

// Events are the reasons of the events about an object, with how many there are.
func (a *API) Events(t testing.TB, namespace, name string) map[string]int {
	t.Helper()
	list, err := a.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	reasons := map[string]int{}
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			reasons[e.Reason]++
		}
	}
	return reasons
}

// AwaitEvent waits for an event about an object.
func (a *API) AwaitEvent(t testing.TB, namespace, name, reason string) {
	t.Helper()
	harness.Await(t, "event "+reason+" of "+name, func() bool { return a.Events(t, namespace, name)[reason] > 0 })
}
