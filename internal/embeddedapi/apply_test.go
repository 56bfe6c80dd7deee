package embeddedapi_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/evictd/evictd/internal/require"
)

func deployment(name string) *applyapps.DeploymentApplyConfiguration {
	labels := map[string]string{"app": name}
	container := applycore.Container().WithName("c").WithImage("a:1").WithPorts(applycore.ContainerPort().WithContainerPort(80))
	return applyapps.Deployment(name, "default").WithSpec(applyapps.DeploymentSpec().
		WithSelector(applymeta.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(applycore.PodTemplateSpec().WithLabels(labels).WithSpec(applycore.PodSpec().WithContainers(container))))
}

// managers are the managers of an object, with their operation and subresource.
func managers(o metav1.Object) string {
	var all []string
	for _, m := range o.GetManagedFields() {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", m.Manager, m.Operation, m.Subresource)))
	}
	return strings.Join(all, ", ")
}

func TestApplyMakesMergesAndRefusesConflicts(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	deployments := client.AppsV1().Deployments("default")
	d, err := deployments.Apply(ctx, deployment("web"), metav1.ApplyOptions{FieldManager: "one"})
	require.NoError(t, err)
	if *d.Spec.Replicas != 1 || d.Generation != 1 || d.UID == "" || managers(d) != "one Apply" {
		t.Errorf("made %+v with managers %s", d.Spec, managers(d))
	}
	again, err := deployments.Apply(ctx, deployment("web"), metav1.ApplyOptions{FieldManager: "one"})
	require.NoError(t, err)
	if again.ResourceVersion != d.ResourceVersion {
		t.Error("the same configuration changed the object")
	}

	d, err = deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{FieldManager: "two"})
	require.NoError(t, err)
	if managers(d) != "one Apply, two Update" {
		t.Errorf("after a patch: %s", managers(d))
	}
	five := deployment("web")
	five.Spec.WithReplicas(5)
	_, err = deployments.Apply(ctx, five, metav1.ApplyOptions{FieldManager: "one"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "two"`) || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Errorf("a conflict is %v", err)
	}
	d, err = deployments.Apply(ctx, five, metav1.ApplyOptions{FieldManager: "one", Force: true})
	require.NoError(t, err)
	if *d.Spec.Replicas != 5 || managers(d) != "one Apply" {
		t.Errorf("forced: %d, %s", *d.Spec.Replicas, managers(d))
	}

	more := deployment("web")
	more.Spec.Template.Spec.Containers[0].WithEnv(applycore.EnvVar().WithName("A").WithValue("1"))
	_, err = deployments.Apply(ctx, more, metav1.ApplyOptions{FieldManager: "three"})
	require.NoError(t, err)
	less := applyapps.Deployment("web", "default")
	d, err = deployments.Apply(ctx, less, metav1.ApplyOptions{FieldManager: "three"})
	require.NoError(t, err)
	if c := d.Spec.Template.Spec.Containers[0]; len(c.Env) > 0 || c.Image != "a:1" || managers(d) != "one Apply" {
		t.Errorf("after its only manager left it, the container has %v; managers %s", c, managers(d))
	}
}

func TestFieldsHaveManagersFromTheFirstApplicationOn(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	_, err := client.CoreV1().Nodes().Create(ctx, node("n"), metav1.CreateOptions{FieldManager: "maker"})
	require.NoError(t, err)
	n, err := client.CoreV1().Nodes().Apply(ctx, applycore.Node("n").WithLabels(map[string]string{"a": "b"}), metav1.ApplyOptions{FieldManager: "one"})
	require.NoError(t, err)
	if managers(n) != "one Apply, before-first-apply Update" || n.Labels["a"] != "b" {
		t.Errorf("managers %s, labels %v", managers(n), n.Labels)
	}
	n.Status.NodeInfo.KubeletVersion = "v1"
	n, err = client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{FieldManager: "kubelet"})
	require.NoError(t, err)
	if managers(n) != "one Apply, before-first-apply Update, kubelet Update status" {
		t.Errorf("managers %s", managers(n))
	}
	n, err = client.CoreV1().Nodes().ApplyStatus(ctx, applycore.Node("n").WithStatus(applycore.NodeStatus().WithPhase("Running")), metav1.ApplyOptions{FieldManager: "two"})
	require.NoError(t, err)
	if !strings.Contains(managers(n), "two Apply status") || n.Status.Phase != "Running" {
		t.Errorf("managers %s, phase %s", managers(n), n.Status.Phase)
	}
	_, err = client.CoreV1().Nodes().ApplyStatus(ctx, applycore.Node("missing"), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the status of what is not there: %v", err)
	}
}

func TestScaleManagesReplicas(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	deployments := client.AppsV1().Deployments("default")
	two := deployment("web")
	two.Spec.WithReplicas(2)
	_, err := deployments.Apply(ctx, two, metav1.ApplyOptions{FieldManager: "one"})
	require.NoError(t, err)
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	scale.Spec.Replicas = 7
	_, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{FieldManager: "scaler"})
	require.NoError(t, err)
	_, err = deployments.Apply(ctx, two, metav1.ApplyOptions{FieldManager: "one"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "scaler") {
		t.Errorf("after /scale: %v", err)
	}
	_, err = deployments.Apply(ctx, deployment("unmanaged"), metav1.ApplyOptions{FieldManager: "one"})
	require.NoError(t, err)
	scale, err = deployments.GetScale(ctx, "unmanaged", metav1.GetOptions{})
	require.NoError(t, err)
	scale.Spec.Replicas = 7
	_, err = deployments.UpdateScale(ctx, "unmanaged", scale, metav1.UpdateOptions{FieldManager: "scaler"})
	require.NoError(t, err)
	d, err := deployments.Get(ctx, "unmanaged", metav1.GetOptions{})
	require.NoError(t, err)
	if managers(d) != "one Apply" || *d.Spec.Replicas != 7 {
		t.Errorf("managers %s, replicas %d", managers(d), *d.Spec.Replicas)
	}
	d.Annotations = map[string]string{"a": "b"}
	d, err = deployments.Update(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)
	if d.Generation != 3 {
		t.Errorf("the generation of a Deployment is %d after changes of its spec and of its annotations, want 3", d.Generation)
	}
}

// TestScaleToZeroLeavesReplicasToTheNextManager holds for objects that were applied and for others: a Scale leaves 0 out.
func TestScaleToZeroLeavesReplicasToTheNextManager(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	deployments := client.AppsV1().Deployments("default")
	two := deployment("applied")
	two.Spec.WithReplicas(2)
	d, err := deployments.Apply(ctx, two, metav1.ApplyOptions{FieldManager: "one"})
	require.NoError(t, err)
	made := d.DeepCopy()
	made.ObjectMeta = metav1.ObjectMeta{Name: "made"}
	_, err = deployments.Create(ctx, made, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"applied", "made"} {
		scale, err := deployments.GetScale(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		scale.Spec.Replicas = 0
		_, err = deployments.UpdateScale(ctx, name, scale, metav1.UpdateOptions{FieldManager: "scaler"})
		require.NoError(t, err)
		next := applyapps.Deployment(name, "default").WithSpec(applyapps.DeploymentSpec().WithReplicas(3))
		d, err := deployments.Apply(ctx, next, metav1.ApplyOptions{FieldManager: "three"})
		require.NoError(t, err)
		if *d.Spec.Replicas != 3 || strings.Contains(managers(d), "scaler") {
			t.Errorf("%s: replicas %d, managers %s", name, *d.Spec.Replicas, managers(d))
		}
	}
}

func TestWhatCannotBeAppliedIsRefused(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	for _, c := range []struct{ configuration, manager, message string }{
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"daat":{}}`, "one", ".daat: field not declared in schema"},
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"}}`, "one", "does not match the name on the URL"},
		{`{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"m"}}`, "one", "invalid object type"},
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","managedFields":[{"manager":"x"}]}}`, "one", "metadata.managedFields must be nil"},
		{`[`, "one", "error decoding patch"},
		{`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`, "", "is required for apply patch"},
	} {
		_, err := client.CoreV1().ConfigMaps("default").Patch(ctx, "m", types.ApplyYAMLPatchType, []byte(c.configuration), metav1.PatchOptions{FieldManager: c.manager})
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v; expected %q", c.configuration, err, c.message)
		}
	}
}

// TestWhatAdmissionSetsIsNoConflict applies to objects that were made by POST fields that admission has
// set in them, and fields that their client has set.
func TestWhatAdmissionSetsIsNoConflict(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	pods, one := client.CoreV1().Pods("default"), metav1.ApplyOptions{FieldManager: "one"}
	_, err := client.CoreV1().LimitRanges("default").Create(ctx, &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{{
		Type: v1.LimitTypeContainer, DefaultRequest: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.Create(ctx, pod("p"), metav1.CreateOptions{})
	require.NoError(t, err)
	applied := applycore.Pod("p", "default").WithAnnotations(map[string]string{"kubernetes.io/limit-ranger": "mine"}).
		WithSpec(applycore.PodSpec().WithTolerations(applycore.Toleration().WithKey("k").WithOperator(v1.TolerationOpExists)))
	p, err := pods.Apply(ctx, applied, one)
	if err != nil || p.Spec.Tolerations[0].Key != "k" {
		t.Errorf("tolerations %v: %v", p.Spec.Tolerations, err)
	}
	_, err = pods.ApplyStatus(ctx, applycore.Pod("p", "default").WithStatus(applycore.PodStatus().WithPhase(v1.PodRunning)), one)
	require.NoError(t, err)
	image := applycore.Pod("p", "default").WithSpec(applycore.PodSpec().WithContainers(applycore.Container().WithName("main").WithImage("other")))
	if _, err = pods.Apply(ctx, image, metav1.ApplyOptions{FieldManager: "two"}); !apierrors.IsConflict(err) {
		t.Errorf("the image that the client has set: %v", err)
	}
}
