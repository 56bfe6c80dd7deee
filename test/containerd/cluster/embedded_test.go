package cluster_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/test/containerd/cluster"
)

// TestControllersRunOnTheEmbeddedAPI runs pods of every controller on real kubelets, with
// kube-controller-manager and no other server than evictd's: the embedded API and its scheduler.
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
		c.Make(kind.Kind, namespace, 2, c.Template(kind.orders...))
		c.Await("the pods of the "+string(kind.Kind)+" to run", func() bool {
			n, err := kind.done(namespace)
			return err == nil && n == 2
		})
		c.Remove(namespace)
	}
}
