package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

// TestTheJobOfAnUninstallationListsTheNodesItHasNotReached runs the program of the chart's Job with the rights
// of its service account. The test is the DaemonSet controller and the kubelet of one node; the other
// node is away. The Job has run out of time when it is ended.
// rule: S9.11
func TestTheJobOfAnUninstallationListsTheNodesItHasNotReached(t *testing.T) {
	helm := template(t)
	server, apply := apiServer(t)
	apply("{apiVersion: v1, kind: Namespace, metadata: {name: evictd-system}}")
	apply(helm)
	admin, err := server.Client(apiserver.Admin)
	require.NoError(t, err)
	ctx := t.Context()
	sets, pods := admin.AppsV1().DaemonSets(namespace), admin.CoreV1().Pods(namespace)
	_, err = admin.CoreV1().Nodes().Create(ctx, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "evictd.io/memory-pressure", Effect: v1.TaintEffectNoSchedule}, {Key: "other", Effect: v1.TaintEffectNoSchedule}}},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: "evictd.io/MemoryPressure", Status: v1.ConditionTrue}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.CoordinationV1().Leases(namespace).Create(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "evictd-n1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	set, err := sets.Get(ctx, "evictd", metav1.GetOptions{})
	require.NoError(t, err)
	set.Status.DesiredNumberScheduled, set.Status.ObservedGeneration = 2, set.Generation
	set, err = sets.UpdateStatus(ctx, set, metav1.UpdateOptions{})
	require.NoError(t, err)
	ready(t, admin, set, "before", "n1")
	ready(t, admin, set, "away", "n2")

	job, err := admin.BatchV1().Jobs(namespace).Get(ctx, "evictd-uninstall", metav1.GetOptions{})
	require.NoError(t, err)
	c, output := uninstaller(t, server, job)
	asked := func() bool {
		set, err = sets.Get(ctx, "evictd", metav1.GetOptions{})
		require.NoError(t, err)
		return slices.ContainsFunc(set.Spec.Template.Spec.Containers[0].Env, func(e v1.EnvVar) bool { return e.Value == "true" })
	}
	wait.Until(t, "the pods to be asked to uninstall", asked)
	require.NoError(t, pods.Delete(ctx, "before", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	ready(t, admin, set, "after", "n1")
	wait.Until(t, "the node that answers to be done", func() bool { return strings.Contains(output(), "uninstalled from n1\n") })
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	err = c.Wait()
	if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 1 {
		t.Errorf("it has ended with %v; expected exit code 1", err)
	}
	if text := output(); !strings.Contains(text, "node n2 was not reached: evictd is still installed there") || strings.Contains(text, "node n1 was not") {
		t.Errorf("it says %q", text)
	}
	node, err := admin.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	require.NoError(t, err)
	if slices.ContainsFunc(node.Spec.Taints, func(taint v1.Taint) bool { return strings.HasPrefix(taint.Key, "evictd.io/") }) || len(node.Status.Conditions) > 0 {
		t.Errorf("node n1 has %v and %v", node.Spec.Taints, node.Status.Conditions)
	}
	leases, err := admin.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	if len(leases.Items) > 0 {
		t.Errorf("%d Leases are left", len(leases.Items))
	}
}

// ready makes a pod of the DaemonSet on a node, which is ready.
func ready(t *testing.T, admin kubernetes.Interface, set *apps.DaemonSet, name, node string) {
	t.Helper()
	pods := admin.CoreV1().Pods(namespace)
	pod, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set.Spec.Template.Labels}, Spec: set.Spec.Template.Spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, pods.Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: v1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{}))
	pod, err = pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
	_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// uninstaller starts the program of the Job as its service account.
func uninstaller(t *testing.T, server *apiserver.Server, job *batch.Job) (c *exec.Cmd, output func() string) {
	t.Helper()
	admin, err := server.Client(apiserver.Admin)
	require.NoError(t, err)
	spec := &job.Spec.Template.Spec
	token, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), spec.ServiceAccountName, &authentication.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	kubeconfig, err := clientcmd.LoadFromFile(server.Kubeconfig(apiserver.Admin))
	require.NoError(t, err)
	for name := range kubeconfig.AuthInfos {
		kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, file))
	said, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, said.Close()) })
	command := spec.Containers[0].Command
	c = exec.CommandContext(t.Context(), harness.Program(t, filepath.Base(command[0])), command[1:]...)
	c.Env, c.Stdout, c.Stderr = []string{"KUBECONFIG=" + file}, said, said
	require.NoError(t, c.Start())
	return c, func() string { return string(require.ReadFile(t, said.Name())) }
}
