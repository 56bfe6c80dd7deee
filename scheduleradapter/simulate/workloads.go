package simulate

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/podtemplate"
)

// controller identifies the controller of a pod; no kind: the pod has none.
type controller struct{ namespace, kind, name string }

func controllerOf(object metav1.Object) controller {
	c := controller{namespace: object.GetNamespace()}
	if owner := metav1.GetControllerOf(object); owner != nil {
		c.kind, c.name = owner.Kind, owner.Name
	}
	return c
}

// makePods adds the pods that the controllers of the workloads would add to those that
// are given, and their claims.
func (l *loader) makePods(o *Objects) {
	given := map[controller][]*v1.Pod{}
	for _, pod := range o.Pods {
		given[controllerOf(pod)] = append(given[controllerOf(pod)], pod)
	}
	scaled := map[controller]bool{}
	for _, set := range o.ReplicaSets {
		scaled[controllerOf(set)] = true
	}
	const without = " without containers"
	for _, d := range o.Deployments {
		switch {
		case len(d.Spec.Template.Spec.Containers) == 0:
			l.unused["Deployment of apps/v1"+without]++
		case !scaled[controller{d.Namespace, "Deployment", d.Name}]:
			l.scale(o, d, given)
		}
	}
	var workloads []metav1.Object
	each(o.ReplicaSets, func(object *appsv1.ReplicaSet) { workloads = append(workloads, object) })
	each(o.ReplicationControllers, func(object *v1.ReplicationController) { workloads = append(workloads, object) })
	each(o.StatefulSets, func(object *appsv1.StatefulSet) { workloads = append(workloads, object) })
	each(o.DaemonSets, func(object *appsv1.DaemonSet) { workloads = append(workloads, object) })
	each(o.Jobs, func(object *batchv1.Job) { workloads = append(workloads, object) })
	for _, object := range workloads {
		w, _ := podtemplate.Of(object)
		owned := given[controller{w.GetNamespace(), w.Kind, w.GetName()}]
		if selector, err := metav1.LabelSelectorAsSelector(w.Selector); err == nil && !selector.Empty() {
			for _, pod := range given[controller{namespace: w.GetNamespace()}] {
				if selector.Matches(labels.Set(pod.Labels)) {
					owned = append(slices.Clip(owned), pod)
				}
			}
		}
		switch {
		case len(w.Template.Spec.Containers) == 0:
			if w.Kind == "DaemonSet" || w.Kind == "Job" { // by the others, pods are spread
				l.unused[w.Kind+" of "+w.APIVersion+without]++
			}
			continue
		case w.Pods > maxPods:
			l.fault(l.places[object], fmt.Errorf("%d pods: expected at most %d", w.Pods, maxPods))
			continue
		}
		for _, pod := range missing(w, owned, o.Nodes) {
			l.places[pod] = l.places[object] + ": Pod " + pod.Namespace + "/" + pod.Name
			l.fault(l.places[pod], admission.CompleteMeta(pod, true).ToAggregate())
			o.Pods = append(o.Pods, pod)
			o.addClaims(w, pod)
		}
	}
}

// maxPods bounds the pods of a workload.
const maxPods = 1_000_000

// scale adds the ReplicaSet of a Deployment. If pods of the Deployment are given without
// their ReplicaSet, it is that of the youngest, and smaller by the pods of the others.
func (l *loader) scale(o *Objects, d *appsv1.Deployment, given map[controller][]*v1.Pod) {
	var pods []*v1.Pod
	for c, of := range given {
		if c.namespace == d.Namespace && c.kind == "ReplicaSet" && c.name == d.Name+"-"+of[0].Labels[appsv1.DefaultDeploymentUniqueLabelKey] {
			pods = append(pods, of...)
		}
	}
	hash := ""
	if len(pods) > 0 {
		hash = slices.MaxFunc(pods, func(a, b *v1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		}).Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	}
	set := podtemplate.ReplicaSet(d, hash)
	if set.Spec.Replicas != nil {
		others := *set.Spec.Replicas
		for _, pod := range pods {
			if active(pod) && pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash {
				others--
			}
		}
		set.Spec.Replicas = new(max(others, 0))
	}
	l.places[set] = l.places[d]
	o.ReplicaSets = append(o.ReplicaSets, set)
}

// active reports whether a controller counts a pod.
func active(pod *v1.Pod) bool {
	return pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed && pod.DeletionTimestamp == nil
}

// missing are the pods that the controller of a workload adds to its own.
func missing(w *podtemplate.Workload, owned []*v1.Pod, nodes []*v1.Node) (pods []*v1.Pod) {
	names, onNode, left := map[string]bool{}, map[string]bool{}, w.Pods
	for _, pod := range owned {
		names[pod.Name], onNode[nodeOf(pod)] = true, true
		names[w.GetName()+"-"+pod.Labels[batchv1.JobCompletionIndexAnnotation]] = true
		if active(pod) || w.Kind == "StatefulSet" { // which waits until the name of a pod that ends is free
			left--
		}
	}
	for n := 0; left > 0; n++ {
		if pod := w.Pod(n); !names[pod.Name] {
			pods, left = append(pods, pod), left-1
		}
	}
	if w.Kind == "DaemonSet" {
		for i, node := range nodes {
			if pod := w.PodOn(i, node); pod != nil && !onNode[node.Name] {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// nodeOf is the node that a pod has, or for which a DaemonSet has made it.
func nodeOf(pod *v1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return pod.Spec.NodeName
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, r := range term.MatchFields {
			if len(r.Values) == 1 {
				return r.Values[0]
			}
		}
	}
	return ""
}

// addClaims adds the volumes of a pod of a StatefulSet, and the claims that are not given.
func (o *Objects) addClaims(w *podtemplate.Workload, pod *v1.Pod) {
	for i := range w.Claims {
		claim := w.Claims[i].DeepCopy()
		name := claim.Name
		claim.Name, claim.Namespace = name+"-"+pod.Name, pod.Namespace
		claim.UID = types.UID(claim.Namespace + "/" + claim.Name)
		source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}
		pod.Spec.Volumes = append(slices.DeleteFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name }), v1.Volume{Name: name, VolumeSource: source})
		if !slices.ContainsFunc(o.Claims, func(c *v1.PersistentVolumeClaim) bool { return c.Namespace == claim.Namespace && c.Name == claim.Name }) {
			o.Claims = append(o.Claims, claim)
		}
	}
}
