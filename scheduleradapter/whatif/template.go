// Package whatif asks the running scheduler whether further pods of a template would get nodes,
// and serves and prints its answer. It writes nothing to the API server.
package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/podspec"
)

// template is what the documents of a question say.
type template struct {
	pod *v1.Pod // nil: no document has one
	// count is that of the workload.
	count           int
	priorityClasses []*schedulingv1.PriorityClass
	runtimeClasses  []*nodev1.RuntimeClass
	// leftOut is what the answer does not regard.
	leftOut []string
}

// kinds are those of the documents.
const kinds = "Pod, Deployment, ReplicaSet, StatefulSet, ReplicationController or Job"

// read reads a pod or a workload, and the classes beside it. The error joins all faults.
func read(data []byte) (*template, error) {
	t := &template{}
	objects, err := manifest.Objects(data)
	faults := []error{err}
	for i := range objects {
		faults = append(faults, manifest.At(objects[i].Place, t.add(&objects[i])))
	}
	if err := errors.Join(faults...); err != nil || t.pod != nil {
		return t, err
	}
	return t, errors.New("expected a " + kinds)
}

// add adds a document.
func (t *template) add(document *manifest.Object) (err error) {
	about := document.TypeMeta
	had := t.pod != nil
	switch about.APIVersion + " " + about.Kind {
	case "v1 Pod":
		object := &v1.Pod{}
		err = document.Decode(object)
		object.Name = cmp.Or(object.Name, strings.TrimSuffix(object.GenerateName, "-"))
		t.pod, t.count = object, 1
	case "apps/v1 Deployment":
		object := &appsv1.Deployment{}
		err = document.Decode(object)
		t.of(object, &object.Spec.Template, object.Spec.Replicas)
	case "apps/v1 ReplicaSet":
		object := &appsv1.ReplicaSet{}
		err = document.Decode(object)
		t.of(object, &object.Spec.Template, object.Spec.Replicas)
		t.own(about, object)
	case "apps/v1 StatefulSet":
		object := &appsv1.StatefulSet{}
		err = document.Decode(object)
		t.of(object, &object.Spec.Template, object.Spec.Replicas)
		t.own(about, object)
		for _, claim := range object.Spec.VolumeClaimTemplates {
			t.leaveOut("the claim of volumeClaimTemplate " + claim.Name)
		}
	case "v1 ReplicationController":
		object := &v1.ReplicationController{}
		err = document.Decode(object)
		t.of(object, cmp.Or(object.Spec.Template, &v1.PodTemplateSpec{}), object.Spec.Replicas)
		t.own(about, object)
	case "batch/v1 Job":
		object := &batchv1.Job{}
		err = document.Decode(object)
		pods := ptr.Deref(object.Spec.Parallelism, 1)
		t.of(object, &object.Spec.Template, new(min(pods, ptr.Deref(object.Spec.Completions, pods))))
	case "scheduling.k8s.io/v1 PriorityClass":
		object := &schedulingv1.PriorityClass{}
		t.priorityClasses = append(t.priorityClasses, object)
		return document.Decode(object)
	case "node.k8s.io/v1 RuntimeClass":
		object := &nodev1.RuntimeClass{}
		t.runtimeClasses = append(t.runtimeClasses, object)
		return document.Decode(object)
	default:
		return fmt.Errorf("apiVersion %q, kind %q: expected a %s, and PriorityClasses and RuntimeClasses beside it", about.APIVersion, about.Kind, kinds)
	}
	if had {
		err = errors.Join(err, fmt.Errorf("a second %s: expected one", about.Kind))
	}
	return err
}

// of takes the template of a workload.
func (t *template) of(workload metav1.Object, template *v1.PodTemplateSpec, replicas *int32) {
	t.pod = &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	t.pod.Name, t.pod.Namespace = workload.GetName(), workload.GetNamespace()
	t.count = int(ptr.Deref(replicas, 1))
}

// own makes the workload the controller of the pod, whose selector the default spread
// constraints use.
func (t *template) own(about metav1.TypeMeta, workload metav1.Object) {
	t.pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: about.APIVersion, Kind: about.Kind, Name: workload.GetName(), UID: workload.GetUID(), Controller: new(true)}}
}

func (t *template) leaveOut(what string) { t.leftOut = append(t.leftOut, what) }

// complete makes the template a new pod as an API server would. cluster finds a
// PriorityClass that no document has; nil: it is unknown. The error joins all faults.
func (t *template) complete(ctx context.Context, cluster func(context.Context, string) (*schedulingv1.PriorityClass, error)) (faults, failed error) {
	t.detach()
	classes := admission.NewClasses()
	var all field.ErrorList
	for _, class := range t.priorityClasses {
		all = append(all, classes.AddPriorityClass(class)...)
	}
	for _, class := range t.runtimeClasses {
		all = append(all, classes.AddRuntimeClass(class)...)
	}
	unknown, err := t.addPriorityClass(ctx, classes, cluster)
	if err != nil {
		return nil, err
	}
	all = append(all, unknown...)
	t.leaveOutRuntime()
	if len(t.pod.Spec.Containers) == 0 {
		all = append(all, field.Required(field.NewPath("spec", "containers"), ""))
	}
	all = append(all, admission.CompleteMeta(t.pod, true)...)
	return append(all, classes.CompletePod(t.pod)...).ToAggregate(), nil
}

// detach removes what only a pod in a cluster has, and what the answer does not regard.
func (t *template) detach() {
	pod := t.pod
	pod.UID, pod.ResourceVersion, pod.CreationTimestamp, pod.DeletionTimestamp = "", "", metav1.Time{}, nil
	pod.Status = v1.PodStatus{}
	spec := &pod.Spec
	if spec.NodeName != "" {
		t.leaveOut("the node " + spec.NodeName + " of spec.nodeName")
		spec.NodeName = ""
	}
	if len(spec.SchedulingGates) > 0 {
		spec.SchedulingGates = nil
		t.leaveOut("the scheduling gates")
	}
	if spec.SchedulingGroup != nil {
		spec.SchedulingGroup = nil
		t.leaveOut("the PodGroup: the pods are tried one by one")
	}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool {
		if v.Ephemeral == nil {
			return false
		}
		t.leaveOut("the claim of the ephemeral volume " + v.Name)
		return true
	})
	spec.ResourceClaims = slices.DeleteFunc(spec.ResourceClaims, func(c v1.PodResourceClaim) bool {
		if c.ResourceClaimTemplateName == nil {
			return false
		}
		t.leaveOut("the claim of ResourceClaimTemplate " + *c.ResourceClaimTemplateName)
		return true
	})
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			resources := &containers[i].Resources
			resources.Claims = slices.DeleteFunc(resources.Claims, func(c v1.ResourceClaim) bool {
				return !slices.ContainsFunc(spec.ResourceClaims, func(of v1.PodResourceClaim) bool { return of.Name == c.Name })
			})
		}
	}
}

// addPriorityClass adds the class of the pod where no document has it.
func (t *template) addPriorityClass(ctx context.Context, classes *admission.Classes, cluster func(context.Context, string) (*schedulingv1.PriorityClass, error)) (faults field.ErrorList, failed error) {
	spec := &t.pod.Spec
	name := spec.PriorityClassName
	given := slices.ContainsFunc(t.priorityClasses, func(c *schedulingv1.PriorityClass) bool { return c.Name == name })
	if given || name == "" || name == podspec.SystemClusterCritical || name == podspec.SystemNodeCritical {
		return nil, nil
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, PreemptionPolicy: spec.PreemptionPolicy}
	if spec.Priority != nil { // a pod of the cluster
		class.Value = *spec.Priority
	} else if class, failed = cluster(ctx, name); failed != nil {
		return nil, failed
	} else if class == nil {
		spec.PriorityClassName = "" // this fault is the only one of it
		return field.ErrorList{field.Invalid(field.NewPath("spec", "priorityClassName"), name, "no running pod has this PriorityClass: add it to the file")}, nil
	}
	return classes.AddPriorityClass(class), nil
}

func (t *template) leaveOutRuntime() {
	name := t.pod.Spec.RuntimeClassName
	if name == nil || slices.ContainsFunc(t.runtimeClasses, func(c *nodev1.RuntimeClass) bool { return c.Name == *name }) {
		return
	}
	t.pod.Spec.RuntimeClassName = nil
	if len(t.pod.Spec.Overhead) == 0 { // a pod of the cluster has it
		t.leaveOut("the overhead and the nodes of RuntimeClass " + *name)
	}
}
