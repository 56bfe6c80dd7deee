package suite_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness/kube"
)

// agentOf is a client with a token of evictd's agent that is bound to the node,
// or to none where that is empty.
func (a *api) agentOf(node string) kubernetes.Interface {
	a.t.Helper()
	request := &authentication.TokenRequest{}
	if node != "" {
		found, err := a.admin.CoreV1().Nodes().Get(a.t.Context(), node, metav1.GetOptions{})
		require.NoError(a.t, err)
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: found.UID}
	}
	token, err := a.admin.CoreV1().ServiceAccounts("evictd-system").CreateToken(a.t.Context(), "evictd-agent", request, metav1.CreateOptions{})
	require.NoError(a.t, err)
	admin, err := a.Config(apiserver.Admin)
	require.NoError(a.t, err)
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	require.NoError(a.t, err)
	return client
}

// trial attempts are judged as any other, and change nothing.
var trial = []string{metav1.DryRunAll}

// attempt is something an agent may want of the API server.
type attempt struct {
	what string
	ask  func(context.Context, kubernetes.Interface) error
}

func patchNode(name, body string, subresources ...string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{DryRun: trial}, subresources...)
		return err
	}
}

func failPod(name string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Pods("default").Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"status":{"message":"m"}}`), metav1.PatchOptions{DryRun: trial}, "status")
		return err
	}
}

func deletePod(name string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{DryRun: trial})
	}
}

func evictPod(name string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, c kubernetes.Interface) error {
		return c.PolicyV1().Evictions("default").Evict(ctx, &policy.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, DeleteOptions: &metav1.DeleteOptions{DryRun: trial},
		})
	}
}

func createLease(namespace, name string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoordinationV1().Leases(namespace).Create(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: trial})
		return err
	}
}

func listPods(selector string) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: selector})
		return err
	}
}

func createEvent(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.EventsV1().Events("default").Create(ctx, &events.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "n1-"}, EventTime: metav1.NowMicro(), Type: v1.EventTypeNormal, Reason: "Test", Action: "Testing",
		ReportingController: "evictd.io/evictd", ReportingInstance: "n1", Regarding: v1.ObjectReference{Kind: "Node", Name: "n1", Namespace: "default"},
	}, metav1.CreateOptions{DryRun: trial})
	return err
}

func readSecrets(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	return err
}

const (
	pressure = `{"status":{"conditions":[{"type":"evictd.io/MemoryPressure","status":"True"}]}}`
	taint    = `{"spec":{"taints":[{"key":"evictd.io/memory-pressure","effect":"NoSchedule"}]}}`
)

// ofNode are attempts about a node and the pod that is on it.
func ofNode(node, pod string) (conditions, taints, status, deletion, lease, nodeLease attempt) {
	return attempt{"conditions of " + node, patchNode(node, pressure, "status")},
		attempt{"taints of " + node, patchNode(node, taint)},
		attempt{"status of a pod on " + node, failPod(pod)},
		attempt{"deletion of a pod on " + node, deletePod(pod)},
		attempt{"evictd's lease of " + node, createLease("evictd-system", "evictd-"+node)},
		attempt{"kubelet's lease of " + node, createLease("kube-node-lease", node)}
}

func TestAgentReachesItsOwnNodeOnly(t *testing.T) {
	a := onKubeAPIServer(t)
	a.grant()
	a.createNodes(node("n1"), node("n2"))
	bound := func(name, node string) *v1.Pod { return pod(name, "", func(p *v1.Pod) { p.Spec.NodeName = node }) }
	a.createPods(bound("own", "n1"), bound("other", "n2"))
	conditions, taints, status, deletion, lease, nodeLease := ofNode("n1", "own")
	conditions2, taints2, status2, deletion2, lease2, nodeLease2 := ofNode("n2", "other")
	event := attempt{"an event", createEvent}
	pods := attempt{"pods of its node", listPods("spec.nodeName=n1")}
	allPods := attempt{"all pods", listPods("")}
	secrets := attempt{"secrets", readSecrets}
	eviction, eviction2 := attempt{"the Eviction API for a pod on n1", evictPod("own")}, attempt{"the Eviction API for a pod on n2", evictPod("other")}
	kubelet, err := a.Client(apiserver.Node)
	require.NoError(t, err)
	bare := a.agentOf("")
	await(t, "the policy to be in force", func() bool { return apierrors.IsForbidden(lease.ask(t.Context(), bare)) })
	for _, as := range []struct {
		name        string
		client      kubernetes.Interface
		may, mayNot []attempt
	}{
		{
			name: "with a token bound to the node", client: a.agentOf("n1"),
			may:    []attempt{pods, conditions, taints, status, deletion, eviction, event, lease, nodeLease},
			mayNot: []attempt{conditions2, taints2, status2, deletion2, lease2, nodeLease2, secrets},
		},
		{
			name: "with a token bound to nothing", client: bare,
			may:    []attempt{pods, event},
			mayNot: []attempt{conditions, taints, status, deletion, lease, nodeLease, secrets},
		},
		{
			name: "as the kubelet of the node", client: kubelet,
			may:    []attempt{pods, conditions, status, deletion, eviction, event, nodeLease},
			mayNot: []attempt{allPods, taints, lease, conditions2, taints2, status2, deletion2, eviction2, lease2, nodeLease2, secrets},
		},
	} {
		t.Run(as.name, func(t *testing.T) {
			for _, try := range as.may {
				if err := try.ask(t.Context(), as.client); err != nil {
					t.Errorf("%s: %v", try.what, err)
				}
			}
			for _, try := range as.mayNot {
				if err := try.ask(t.Context(), as.client); !apierrors.IsForbidden(err) {
					t.Errorf("%s: got %v, want it to be forbidden", try.what, err)
				}
			}
		})
	}
}

// TestNodeAgainstAKubeAPIServer runs the tests of the daemon and its agent, which
// test/node has for the embedded API, against a kube-apiserver, with the rights
// of deploy/rbac.
func TestNodeAgainstAKubeAPIServer(t *testing.T) {
	server, faulty := apiserver.NewKubeAPIServer()
	if faulty == nil {
		t.Cleanup(func() {
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	a := open(t, func(testing.TB) (*apiserver.Server, error) { return server, faulty })
	a.grant()
	root, err := sandbox.SourceRoot()
	require.NoError(t, err)
	const tests = "InTheCluster|Backstop|Observe|APIServer|Agent|DaemonThatIsKilled|SoftVictim"
	test := exec.CommandContext(t.Context(), "go", "-C", root, "test", "-count=1", "-v", "-run", tests, "./test/node")
	test.Env = append(os.Environ(), kube.KubeconfigVariable+"="+a.Kubeconfig(apiserver.Admin))
	out, err := test.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	if strings.Contains(string(out), "\n--- PASS: ") {
		return
	}
	_, why, skips := strings.Cut(string(out), "skipped: ")
	if !skips {
		t.Fatalf("test/node has no test that matches %s", tests)
	}
	why, _, _ = strings.Cut(why, "\n")
	t.Skip("skipped: " + why)
}
