// Package podtemplate makes the pods that the controllers of Kubernetes 1.37 make of
// workloads, with their names, owners and labels. It writes nothing to an API server.
package podtemplate

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// Workload is an object of which a controller makes pods.
type Workload struct {
	metav1.TypeMeta
	metav1.Object
	Template *v1.PodTemplateSpec
	// Selector selects the pods without a controller that the controller adopts.
	Selector *metav1.LabelSelector
	// Pods is how many the controller keeps. A DaemonSet has one on each node that Runs
	// accepts, and none here.
	Pods int
	// Claims are those of a StatefulSet, one of each for a pod.
	Claims []v1.PersistentVolumeClaim

	labels map[string]string // of each pod
	// numbered are the labels of a pod by its number; nil: pods are alike.
	numbered func(n int) map[string]string
	first    int // number of the first pod
}

// Of is the workload of an object, if it is one. A Deployment has the pods of its
// ReplicaSet.
func Of(object metav1.Object) (w *Workload, ok bool) {
	w = &Workload{Object: object}
	switch o := object.(type) {
	case *appsv1.Deployment:
		return Of(ReplicaSet(o, ""))
	case *appsv1.ReplicaSet:
		w.of("apps/v1", "ReplicaSet", &o.Spec.Template, o.Spec.Selector, o.Spec.Replicas)
	case *v1.ReplicationController:
		w.of("v1", "ReplicationController", o.Spec.Template, &metav1.LabelSelector{MatchLabels: o.Spec.Selector}, o.Spec.Replicas)
	case *appsv1.StatefulSet:
		w.of("apps/v1", "StatefulSet", &o.Spec.Template, o.Spec.Selector, o.Spec.Replicas)
		w.Claims = o.Spec.VolumeClaimTemplates
		if o.Spec.Ordinals != nil {
			w.first = int(o.Spec.Ordinals.Start)
		}
		revision := o.Status.UpdateRevision
		if revision == "" {
			revision = o.Name + "-" + hash(w.Template, o.Status.CollisionCount)
		}
		w.labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}
		w.numbered = func(n int) map[string]string {
			return map[string]string{appsv1.StatefulSetPodNameLabel: w.name(n), appsv1.PodIndexLabel: strconv.Itoa(n)}
		}
	case *appsv1.DaemonSet:
		w.of("apps/v1", "DaemonSet", &o.Spec.Template, o.Spec.Selector, new(int32))
		w.labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash(w.Template, o.Status.CollisionCount), "pod-template-generation": strconv.FormatInt(max(o.Generation, 1), 10)}
	case *batchv1.Job:
		w.of("batch/v1", "Job", &o.Spec.Template, o.Spec.Selector, new(activePods(o)))
		uid := string(o.UID)
		if strings.Contains(uid, "/") { // namespace/name, which is no value of a label
			uid = rand.SafeEncodeString(uid)
		}
		w.labels = map[string]string{batchv1.JobNameLabel: o.Name, "job-name": o.Name, batchv1.ControllerUidLabel: uid, "controller-uid": uid}
		if ptr.Deref(o.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion {
			w.numbered = func(n int) map[string]string {
				return map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(n)}
			}
		}
	default:
		return nil, false
	}
	return w, true
}

func (w *Workload) of(apiVersion, kind string, template *v1.PodTemplateSpec, selector *metav1.LabelSelector, pods *int32) {
	w.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
	w.Template, w.Selector, w.Pods = template, selector, int(ptr.Deref(pods, 1))
	if template == nil {
		w.Template = &v1.PodTemplateSpec{}
	}
	if w.GetDeletionTimestamp() != nil {
		w.Pods = 0
	}
}

// activePods is how many pods of a Job run at a time.
func activePods(job *batchv1.Job) int32 {
	ended := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue
	})
	if ended || ptr.Deref(job.Spec.Suspend, false) {
		return 0
	}
	pods := ptr.Deref(job.Spec.Parallelism, 1)
	if job.Spec.Completions == nil {
		return pods
	}
	return max(min(pods, *job.Spec.Completions-job.Status.Succeeded), 0)
}

// ReplicaSet is that of the template of a Deployment, as its controller makes it. hash is that of its pods; empty: it is computed.
func ReplicaSet(d *appsv1.Deployment, templateHash string) *appsv1.ReplicaSet {
	if templateHash == "" {
		templateHash = hash(&d.Spec.Template, d.Status.CollisionCount)
	}
	labelled := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[appsv1.DefaultDeploymentUniqueLabelKey] = templateHash
		return labels
	}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Name: d.Name + "-" + templateHash, Namespace: d.Namespace, Labels: labelled(d.Spec.Template.Labels), DeletionTimestamp: d.DeletionTimestamp,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
	}}
	set.UID = types.UID(set.Namespace + "/" + set.Name)
	set.Spec.Template = *d.Spec.Template.DeepCopy()
	set.Spec.Template.Labels = labelled(d.Spec.Template.Labels)
	if set.Spec.Selector = d.Spec.Selector.DeepCopy(); set.Spec.Selector == nil {
		set.Spec.Selector = &metav1.LabelSelector{}
	}
	set.Spec.Selector.MatchLabels = labelled(set.Spec.Selector.MatchLabels)
	set.Spec.Replicas = d.Spec.Replicas
	if d.Spec.Paused {
		set.Spec.Replicas = new(int32)
	}
	return set
}

// hash is that of a template in the labels of its pods. Source: ComputeHash of
// pkg/controller. It is another one in other versions, and for a template without the
// defaults that an API server sets.
func hash(template *v1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(*template))
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(*collisions)))
		h.Write(make([]byte, 4))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

func (w *Workload) name(n int) string { return w.GetName() + "-" + strconv.Itoa(n) }

// Alike reports whether pods differ in their names only. Labels by number make no
// difference if the template does not name their keys.
func (w *Workload) Alike() bool {
	if w.numbered == nil {
		return true
	}
	var keys []string
	note := func(selector *metav1.LabelSelector, more ...string) {
		keys = append(keys, more...)
		if selector != nil {
			keys = slices.AppendSeq(keys, maps.Keys(selector.MatchLabels))
			for _, r := range selector.MatchExpressions {
				keys = append(keys, r.Key)
			}
		}
	}
	for _, c := range w.Template.Spec.TopologySpreadConstraints {
		note(c.LabelSelector, c.MatchLabelKeys...)
	}
	for _, term := range affinityTerms(w.Template.Spec.Affinity) {
		note(term.LabelSelector, append(term.MatchLabelKeys, term.MismatchLabelKeys...)...)
	}
	labels := w.numbered(0)
	return !slices.ContainsFunc(keys, func(key string) bool { _, numbered := labels[key]; return numbered })
}

// affinityTerms are all terms among pods.
func affinityTerms(a *v1.Affinity) (terms []v1.PodAffinityTerm) {
	affinity := ptr.Deref(a, v1.Affinity{})
	pods, anti := ptr.Deref(affinity.PodAffinity, v1.PodAffinity{}), ptr.Deref(affinity.PodAntiAffinity, v1.PodAntiAffinity{})
	terms = slices.Concat(pods.RequiredDuringSchedulingIgnoredDuringExecution, anti.RequiredDuringSchedulingIgnoredDuringExecution)
	for _, weighted := range slices.Concat(pods.PreferredDuringSchedulingIgnoredDuringExecution, anti.PreferredDuringSchedulingIgnoredDuringExecution) {
		terms = append(terms, weighted.PodAffinityTerm)
	}
	return terms
}

// Pod makes the pod of a number, from 0.
func (w *Workload) Pod(n int) *v1.Pod {
	n += w.first
	pod := &v1.Pod{ObjectMeta: *w.Template.ObjectMeta.DeepCopy(), Spec: *w.Template.Spec.DeepCopy()}
	pod.Name, pod.Namespace = w.name(n), w.GetNamespace()
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, w.labels)
	if w.numbered != nil {
		maps.Copy(pod.Labels, w.numbered(n))
	}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: w.APIVersion, Kind: w.Kind, Name: w.GetName(), UID: w.GetUID(), Controller: new(true)}}
	return pod
}

// PodOn makes the pod of a DaemonSet for a node; nil: the DaemonSet does not run there.
// Source: NodeShouldRunDaemonPod and ReplaceDaemonSetPodNodeNameNodeAffinity.
func (w *Workload) PodOn(n int, node *v1.Node) *v1.Pod {
	pod := w.Pod(n)
	if w.GetDeletionTimestamp() != nil || pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return nil
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return nil
	}
	tolerant := pod.DeepCopy()
	admission.SetTolerations(tolerant)
	repels := func(taint *v1.Taint) bool { return taint.Effect != v1.TaintEffectPreferNoSchedule }
	if _, repelled := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, tolerant.Spec.Tolerations, repels, false); repelled {
		return nil
	}
	affinity := ptr.Deref(pod.Spec.Affinity, v1.Affinity{})
	nodeAffinity := ptr.Deref(affinity.NodeAffinity, v1.NodeAffinity{})
	nodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node.Name}}},
	}}}
	affinity.NodeAffinity = &nodeAffinity
	pod.Spec.Affinity = &affinity
	return pod
}
