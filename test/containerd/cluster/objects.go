package cluster

import (
	"fmt"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			TerminationGracePeriodSeconds: new(int64(30)),
			Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 100, Preference: first}},
			}},
		},
	}
}

// OnStop runs an order in the container before its SIGTERM, by a preStop hook, and mounts a
// directory of this host at /shared.
func OnStop(t *v1.PodTemplateSpec, dir, order string) {
	container := &t.Spec.Containers[0]
	container.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/workload", order, "exit 0"}}}}
	container.VolumeMounts = []v1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
	t.Spec.Volumes = []v1.Volume{{Name: "shared", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}}}
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
	ctx, now := c.T.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(1)), PropagationPolicy: new(metav1.DeletePropagationBackground)}
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
