package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evictd/evictd/test/containerd/node"
)

// orders begins the names of the sockets that containers take orders from.
const orders = "evictd-cluster"

// Template is a pod of one container that carries out orders, see cmd/workload. It prefers
// the first node.
func (c *Cluster) Template(list ...string) v1.PodTemplateSpec {
	container := v1.Container{
		Name: "c", Image: node.Workload, ImagePullPolicy: v1.PullNever, Args: list,
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}},
		Env: []v1.EnvVar{
			{Name: "UID", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
			{Name: "ORDERS", Value: "@" + orders + "/$(UID)/c"},
		},
	}
	first := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{c.Nodes[0].Name}}}}
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: v1.PodSpec{
			Containers: []v1.Container{container}, HostNetwork: true, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			TerminationGracePeriodSeconds: new(int64(2)),
			Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 100, Preference: first}},
			}},
		},
	}
}

// OnStop runs an order in the container before its SIGTERM, by a preStop hook, and mounts a
// directory of this host at /shared. The pod has two minutes for both.
func OnStop(t *v1.PodTemplateSpec, dir, order string) {
	t.Spec.TerminationGracePeriodSeconds = new(int64(120))
	container := &t.Spec.Containers[0]
	container.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/workload", order, "exit 0"}}}}
	Share(t, dir, "/shared")
}

// Share mounts a directory of this host in the container.
func Share(t *v1.PodTemplateSpec, dir, at string) {
	container := &t.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, v1.VolumeMount{Name: "shared", MountPath: at})
	t.Spec.Volumes = append(t.Spec.Volumes, v1.Volume{Name: "shared", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}})
}

// AddSidecar adds a restartable init container that ends by itself on SIGTERM.
func AddSidecar(t *v1.PodTemplateSpec) {
	sidecar := *t.Spec.Containers[0].DeepCopy()
	sidecar.Name, sidecar.Args, sidecar.RestartPolicy = "sidecar", nil, new(v1.ContainerRestartPolicyAlways)
	sidecar.Env[1].Value = "@" + orders + "/$(UID)/sidecar"
	t.Spec.InitContainers = append(t.Spec.InitContainers, sidecar)
}

// AddScratch mounts an empty directory at /scratch.
func AddScratch(t *v1.PodTemplateSpec) {
	container := &t.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, v1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
	t.Spec.Volumes = append(t.Spec.Volumes, v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
}

// MakeBudget makes a PodDisruptionBudget that allows no disruption of the pods of a
// controller, and returns once it is in force.
func (c *Cluster) MakeBudget(namespace string) {
	c.T.Helper()
	budgets := c.PolicyV1().PodDisruptionBudgets(namespace)
	budget := &policy.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "victim"}, Spec: policy.PodDisruptionBudgetSpec{Selector: selector, MaxUnavailable: new(intstr.FromInt32(0))}}
	_, err := budgets.Create(c.T.Context(), budget, metav1.CreateOptions{})
	c.must(err)
	c.Await("the budget to count its pods", func() bool {
		b, err := budgets.Get(c.T.Context(), "victim", metav1.GetOptions{})
		return err == nil && b.Status.ExpectedPods > 0
	})
}

// RemoveBudget deletes that PodDisruptionBudget.
func (c *Cluster) RemoveBudget(namespace string) {
	c.T.Helper()
	c.must(c.PolicyV1().PodDisruptionBudgets(namespace).Delete(c.T.Context(), "victim", metav1.DeleteOptions{}))
}

// MakeStatic has the kubelet of the first node run a pod of its own, and returns the
// function that removes it.
func (c *Cluster) MakeStatic(namespace, name string, t v1.PodTemplateSpec) (remove func()) {
	c.T.Helper()
	text, err := json.Marshal(&v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: t.Spec})
	c.must(err)
	dir := c.Nodes[0].staticPods(c)
	file, hidden := filepath.Join(dir, name+".json"), filepath.Join(dir, "."+name) // which the kubelet does not read
	c.must(os.WriteFile(hidden, text, 0o644))
	c.must(os.Rename(hidden, file))
	return func() { c.must(os.Remove(file)) }
}

// MakeCritical makes a pod that may not be evicted, on the first node.
func (c *Cluster) MakeCritical(namespace string, t v1.PodTemplateSpec) {
	c.T.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "critical", Namespace: namespace}, Spec: t.Spec}
	pod.Spec.PriorityClassName = "system-node-critical"
	_, err := c.CoreV1().Pods(namespace).Create(c.T.Context(), pod, metav1.CreateOptions{})
	c.must(err)
}

var (
	labels   = map[string]string{"app": "victim"}
	selector = &metav1.LabelSelector{MatchLabels: labels}
)

// Kind is a controller of pods.
type Kind string

// The controllers that a test can make.
const (
	Deployment  Kind = "Deployment"
	StatefulSet Kind = "StatefulSet"
	DaemonSet   Kind = "DaemonSet"
	Job         Kind = "Job"
)

// Make makes a controller of so many pods; a Job has one, and a DaemonSet one a node.
func (c *Cluster) Make(kind Kind, namespace string, replicas int32, t v1.PodTemplateSpec) {
	c.T.Helper()
	meta := metav1.ObjectMeta{Name: "victim", Namespace: namespace}
	ctx, create := c.T.Context(), metav1.CreateOptions{}
	var err error
	switch kind {
	case Deployment:
		_, err = c.AppsV1().Deployments(namespace).Create(ctx, &apps.Deployment{ObjectMeta: meta, Spec: apps.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: t}}, create)
	case StatefulSet:
		_, err = c.AppsV1().StatefulSets(namespace).Create(ctx, &apps.StatefulSet{ObjectMeta: meta, Spec: apps.StatefulSetSpec{Replicas: &replicas, Selector: selector, Template: t}}, create)
	case DaemonSet:
		_, err = c.AppsV1().DaemonSets(namespace).Create(ctx, &apps.DaemonSet{ObjectMeta: meta, Spec: apps.DaemonSetSpec{Selector: selector, Template: t}}, create)
	case Job:
		t.Spec.RestartPolicy = v1.RestartPolicyNever
		_, err = c.BatchV1().Jobs(namespace).Create(ctx, &batch.Job{ObjectMeta: meta, Spec: batch.JobSpec{Template: t, BackoffLimit: new(int32(0)), PodFailurePolicy: ignoreDisruptions}}, create)
	default:
		err = fmt.Errorf("no kind %q", kind)
	}
	c.must(err)
}

// ignoreDisruptions does not count a pod that was evicted as a failure of the Job.
var ignoreDisruptions = &batch.PodFailurePolicy{Rules: []batch.PodFailurePolicyRule{{
	Action:          batch.PodFailurePolicyActionIgnore,
	OnPodConditions: []batch.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
}}}

// Remove removes what the namespace has, and waits until no pod of it is left.
func (c *Cluster) Remove(namespace string) {
	c.T.Helper()
	ctx, now := context.WithoutCancel(c.T.Context()), metav1.DeleteOptions{GracePeriodSeconds: new(int64(1)), PropagationPolicy: new(metav1.DeletePropagationBackground)}
	all := metav1.ListOptions{}
	c.must(c.AppsV1().Deployments(namespace).DeleteCollection(ctx, now, all))
	c.must(c.AppsV1().StatefulSets(namespace).DeleteCollection(ctx, now, all))
	c.must(c.AppsV1().DaemonSets(namespace).DeleteCollection(ctx, now, all))
	c.must(c.BatchV1().Jobs(namespace).DeleteCollection(ctx, now, all))
	c.Await("no pod to be left in "+namespace, func() bool {
		if err := c.CoreV1().Pods(namespace).DeleteCollection(ctx, now, all); err != nil {
			return false
		}
		pods, err := c.CoreV1().Pods(namespace).List(ctx, all)
		return err == nil && len(pods.Items) == 0
	})
}
