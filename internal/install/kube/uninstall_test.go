package kube

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/evictd/evictd/internal/install"
	"github.com/evictd/evictd/internal/require"
)

func pod(name, node string, ready, asked bool) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: map[string]string{"app": Name}},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: Name}}},
		Status:     v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}},
	}
	if ready {
		p.Status.Conditions[0].Status = v1.ConditionTrue
	}
	if asked {
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: install.UninstallVariable, Value: "true"}}
	}
	return p
}

// rule: S9.11
func TestNodesWhereNothingWasUninstalledAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pending := pod("c", "", false, false)
		pending.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Values: []string{"n3"}}}}},
		}}}
		client := fake.NewClientset(&apps.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: Namespace},
			Spec:       apps.DaemonSetSpec{Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: Name}}}}},
		}, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "evictd.io/memory-pressure", Effect: "NoSchedule"}, {Key: "other", Effect: "NoSchedule"}}},
			Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: "Ready"}, {Type: "evictd.io/MemoryPressure"}, {Type: "evictd.io/DiskPressure"}}},
		}, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "evictd-n1", Namespace: Namespace}}, pod("a", "n1", true, false), pod("b", "n2", true, false), pending)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var done []string
		ended := make(chan struct{})
		var missing []string
		var err error
		go func() {
			defer close(ended)
			missing, err = Uninstall(ctx, client, func(node string) { done = append(done, node) })
		}()
		time.Sleep(10 * time.Second)
		set, getErr := client.AppsV1().DaemonSets(Namespace).Get(ctx, Name, metav1.GetOptions{})
		require.NoError(t, getErr)
		if env := set.Spec.Template.Spec.Containers[0].Env; len(env) != 1 || env[0].Name != install.UninstallVariable || set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String() != "100%" {
			t.Errorf("the DaemonSet's pods get %v by %+v", env, set.Spec.UpdateStrategy)
		}
		require.NoError(t, client.CoreV1().Pods(Namespace).Delete(ctx, "a", metav1.DeleteOptions{}))
		_, createErr := client.CoreV1().Pods(Namespace).Create(ctx, pod("a2", "n1", true, true), metav1.CreateOptions{})
		require.NoError(t, createErr)
		<-ended
		require.NoError(t, err)
		if !slices.Equal(done, []string{"n1"}) || !slices.Equal(missing, []string{"n2", "n3"}) {
			t.Errorf("uninstalled from %v, not from %v; expected n1, and not n2 and n3", done, missing)
		}
		node, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		require.NoError(t, err)
		if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "other" || len(node.Status.Conditions) != 1 || node.Status.Conditions[0].Type != "Ready" {
			t.Errorf("node n1 has %v and %v; expected what is not of evictd", node.Spec.Taints, node.Status.Conditions)
		}
		leases, err := client.CoordinationV1().Leases(Namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		if len(leases.Items) > 0 {
			t.Errorf("%d Leases are left", len(leases.Items))
		}
	})
}
