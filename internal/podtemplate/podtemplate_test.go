package podtemplate_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/podtemplate"
)

var (
	meta     = metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u-1"}
	template = v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "app"}}}}
)

// hash and collided are those of the template by ComputeHash of kube-controller-manager 1.37.2.
const hash, collided = "656488cfc4", "7496956"

// described is a pod with its owner and labels, without those of the template.
func described(pod *v1.Pod) string {
	parts := []string{pod.Namespace + "/" + pod.Name, "of", pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].Name}
	for _, key := range slices.Sorted(maps.Keys(pod.Labels)) {
		if key != "app" {
			parts = append(parts, key+"="+pod.Labels[key])
		}
	}
	return strings.Join(parts, " ")
}

// rule: S8.55
func TestPodsHaveTheLabelsOfTheirControllers(t *testing.T) {
	completed := batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}}
	for name, test := range map[string]struct {
		object metav1.Object
		pods   int
		first  string
	}{
		"a Deployment": {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}}, 1,
			"shop/web-HASH-0 of ReplicaSet web-HASH pod-template-hash=HASH"},
		"a Deployment after a collision": {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template, Replicas: new(int32(3))}, Status: appsv1.DeploymentStatus{CollisionCount: new(int32(2))}}, 3,
			"shop/web-COLLIDED-0 of ReplicaSet web-COLLIDED pod-template-hash=COLLIDED"},
		"a Deployment that is paused": {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template, Paused: true}}, 0,
			"shop/web-HASH-0 of ReplicaSet web-HASH pod-template-hash=HASH"},
		"a ReplicaSet":            {&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Template: template, Replicas: new(int32(2))}}, 2, "shop/web-0 of ReplicaSet web"},
		"a ReplicationController": {&v1.ReplicationController{ObjectMeta: meta, Spec: v1.ReplicationControllerSpec{Template: &template}}, 1, "shop/web-0 of ReplicationController web"},
		"a StatefulSet": {&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template, Ordinals: &appsv1.StatefulSetOrdinals{Start: 5}}}, 1,
			"shop/web-5 of StatefulSet web apps.kubernetes.io/pod-index=5 controller-revision-hash=web-HASH statefulset.kubernetes.io/pod-name=web-5"},
		"a StatefulSet with a revision": {&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template}, Status: appsv1.StatefulSetStatus{UpdateRevision: "web-r2"}}, 1,
			"shop/web-0 of StatefulSet web apps.kubernetes.io/pod-index=0 controller-revision-hash=web-r2 statefulset.kubernetes.io/pod-name=web-0"},
		"a DaemonSet": {&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}}, 0,
			"shop/web-0 of DaemonSet web controller-revision-hash=HASH pod-template-generation=1"},
		"a Job": {&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template, Parallelism: new(int32(5)), Completions: new(int32(4))}, Status: batchv1.JobStatus{Succeeded: 1}}, 3,
			"shop/web-0 of Job web batch.kubernetes.io/controller-uid=u-1 batch.kubernetes.io/job-name=web controller-uid=u-1 job-name=web"},
		"an indexed Job": {&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template, CompletionMode: new(batchv1.IndexedCompletion)}}, 1,
			"shop/web-0 of Job web batch.kubernetes.io/controller-uid=u-1 batch.kubernetes.io/job-completion-index=0 batch.kubernetes.io/job-name=web controller-uid=u-1 job-name=web"},
		"a Job that has ended": {&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}, Status: completed}, 0,
			"shop/web-0 of Job web batch.kubernetes.io/controller-uid=u-1 batch.kubernetes.io/job-name=web controller-uid=u-1 job-name=web"},
	} {
		w, ok := podtemplate.Of(test.object)
		want := strings.NewReplacer("HASH", hash, "COLLIDED", collided).Replace(test.first)
		if got := described(w.Pod(0)); !ok || w.Pods != test.pods || got != want {
			t.Errorf("%s: %d pods, the first is\n%s, want %d and\n%s", name, w.Pods, got, test.pods, want)
		}
	}
	if _, ok := podtemplate.Of(&v1.Pod{}); ok {
		t.Error("a pod is a workload")
	}
}

func TestPodsAreAlikeUnlessTheyAreSpreadByTheirNumber(t *testing.T) {
	byIndex := template.DeepCopy()
	byIndex.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MatchLabelKeys: []string{appsv1.PodIndexLabel}}}
	byName := template.DeepCopy()
	byName.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
		{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: appsv1.StatefulSetPodNameLabel, Operator: metav1.LabelSelectorOpExists}}}},
	}}}
	for _, test := range []struct {
		template *v1.PodTemplateSpec
		want     bool
	}{{&template, true}, {byIndex, false}, {byName, false}} {
		w, _ := podtemplate.Of(&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: *test.template}})
		if got := w.Alike(); got != test.want {
			t.Errorf("%+v: alike %t", test.template.Spec, got)
		}
	}
}

func TestADaemonSetRunsWhereItsPodsMayBe(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: *template.DeepCopy()}}
	set.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	w, _ := podtemplate.Of(set)
	for name, test := range map[string]struct {
		labels string
		taints []v1.Taint
		want   bool
	}{
		"a node that is selected": {"ssd", nil, true},
		"another node":            {"hdd", nil, false},
		"a node that is cordoned": {"ssd", []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}}, true},
		"a node for others":       {"ssd", []v1.Taint{{Key: "others", Effect: v1.TaintEffectNoSchedule}}, false},
		"a node that others like": {"ssd", []v1.Taint{{Key: "others", Effect: v1.TaintEffectPreferNoSchedule}}, true},
	} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"disk": test.labels}}, Spec: v1.NodeSpec{Taints: test.taints}}
		pod := w.PodOn(0, node)
		if (pod != nil) != test.want {
			t.Errorf("%s: %v", name, pod)
		}
		if pod != nil && pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0] != "a" {
			t.Errorf("%s: %+v", name, pod.Spec.Affinity)
		}
	}
}
