package cluster_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// TestControllersRunOnTheEmbeddedAPI runs pods of every controller, made by kubectl, on real kubelets,
// with kube-controller-manager and no other server than evictd's: the embedded API and its scheduler. The limit of a container
// is raised by it, too.
//
// rule: M.156
func TestControllersRunOnTheEmbeddedAPI(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Embedded: true})
	ctx, get := t.Context(), metav1.GetOptions{}
	for _, kind := range []struct {
		cluster.Kind
		name   string
		orders []string
		done   func(namespace string) (int32, error)
	}{
		{cluster.Deployment, "deployment", nil, func(namespace string) (int32, error) {
			d, err := c.AppsV1().Deployments(namespace).Get(ctx, "victim", get)
			return d.Status.AvailableReplicas, err
		}},
		{cluster.StatefulSet, "statefulset", nil, func(namespace string) (int32, error) {
			s, err := c.AppsV1().StatefulSets(namespace).Get(ctx, "victim", get)
			return s.Status.AvailableReplicas, err
		}},
		{cluster.DaemonSet, "daemonset", nil, func(namespace string) (int32, error) {
			d, err := c.AppsV1().DaemonSets(namespace).Get(ctx, "victim", get)
			return d.Status.NumberAvailable, err
		}},
		{cluster.Job, "job", []string{"exit 0"}, func(namespace string) (int32, error) {
			j, err := c.BatchV1().Jobs(namespace).Get(ctx, "victim", get)
			return 2 * j.Status.Succeeded, err
		}},
	} {
		namespace := c.Namespace(kind.name)
		apply(c, manifest(kind.Kind, namespace, c.Template(kind.orders...)))
		c.Await("the pods of the "+string(kind.Kind)+" to run", func() bool {
			n, err := kind.done(namespace)
			return err == nil && n == 2
		})
		c.Remove(namespace)
	}
	testResize(c, nil)
}

// TestContainersOfAMachineAreRestartedAndResized is a node on cgroup v2. The pod whose container was restarted is evicted
// at last.
//
// rule: M.154
// rule: M.156
func TestContainersOfAMachineAreRestartedAndResized(t *testing.T) {
	if os.Getenv("EVICTD_MACHINE") == "" {
		t.Skip("skipped: it is for cgroup v2: the part vm runs it in a virtual machine")
	}
	c := cluster.Start(t, cluster.Options{Bare: true})
	t.Run("restart", func(t *testing.T) { testRestart(c.With(t)) })
	t.Run("resize", func(t *testing.T) { testResize(c.With(t), nil) })
	t.Run("resize-is-deferred", func(t *testing.T) { testResizeThatIsDeferred(c.With(t)) })
}

// manifest is that of a controller of two pods, of one a node for a DaemonSet, or of a Job.
func manifest(kind cluster.Kind, namespace string, template v1.PodTemplateSpec) map[string]any {
	spec, version := map[string]any{"template": &template}, "apps/v1"
	switch kind {
	case cluster.Job:
		version, template.Spec.RestartPolicy = "batch/v1", v1.RestartPolicyNever
	case cluster.Deployment, cluster.StatefulSet:
		spec["replicas"] = 2
	}
	if kind != cluster.Job {
		spec["selector"] = metav1.LabelSelector{MatchLabels: template.Labels}
	}
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": metav1.ObjectMeta{Name: "victim", Namespace: namespace}, "spec": spec}
}

// apply makes an object as a user does.
func apply(c *cluster.Cluster, object map[string]any) {
	c.T.Helper()
	kubectl, err := apiserver.Program("kubectl")
	if err != nil {
		c.T.Skip("skipped:", err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		c.T.Fatal(err)
	}
	command := exec.CommandContext(c.T.Context(), kubectl, "--kubeconfig="+c.API.Kubeconfig(apiserver.Admin), "apply", "--filename=-")
	command.Stdin = bytes.NewReader(text)
	if out, err := command.CombinedOutput(); err != nil {
		c.T.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}
