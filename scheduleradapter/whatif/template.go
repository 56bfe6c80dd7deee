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

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/podtemplate"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// question is what the documents of a request say.
type question struct {
	asked           []*asked
	priorityClasses []*schedulingv1.PriorityClass
	runtimeClasses  []*nodev1.RuntimeClass
	unused          map[string]int // objects by kind and version
}

// asked is a pod or a workload of a question.
type asked struct {
	about    metav1.TypeMeta
	object   metav1.Object
	workload *podtemplate.Workload // nil: a pod
	pods     []cycle.Alike
	stored   bool // given with a uid
	// leftOut is what the answer does not regard.
	leftOut []string
}

// kinds are those of pods, workloads and classes.
var kinds = map[metav1.TypeMeta]func() metav1.Object{
	{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"}: func() metav1.Object { return &schedulingv1.PriorityClass{} },
	{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}:        func() metav1.Object { return &nodev1.RuntimeClass{} },

	{APIVersion: "v1", Kind: "Pod"}:                   func() metav1.Object { return &v1.Pod{} },
	{APIVersion: "apps/v1", Kind: "Deployment"}:       func() metav1.Object { return &appsv1.Deployment{} },
	{APIVersion: "apps/v1", Kind: "ReplicaSet"}:       func() metav1.Object { return &appsv1.ReplicaSet{} },
	{APIVersion: "apps/v1", Kind: "StatefulSet"}:      func() metav1.Object { return &appsv1.StatefulSet{} },
	{APIVersion: "apps/v1", Kind: "DaemonSet"}:        func() metav1.Object { return &appsv1.DaemonSet{} },
	{APIVersion: "v1", Kind: "ReplicationController"}: func() metav1.Object { return &v1.ReplicationController{} },
	{APIVersion: "batch/v1", Kind: "Job"}:             func() metav1.Object { return &batchv1.Job{} },
}

// read reads pods and workloads, and the classes beside them. The error joins all faults.
func read(data []byte) (*question, error) {
	q := &question{unused: map[string]int{}}
	objects, err := manifest.Objects(data)
	faults := []error{err}
	for i := range objects {
		faults = append(faults, manifest.At(objects[i].Place, q.add(&objects[i])))
	}
	q.removeOwned()
	if err := errors.Join(faults...); err != nil || len(q.asked) > 0 {
		return q, err
	}
	return q, errors.New("expected a Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController or Job")
}

// add adds an object.
func (q *question) add(document *manifest.Object) error {
	made, known := kinds[document.TypeMeta]
	if !known {
		q.unused[document.Kind+" of "+document.APIVersion]++
		return nil
	}
	a := &asked{about: document.TypeMeta, object: made()}
	unknown, err := document.DecodeLeniently(a.object)
	if a.stored = a.object.GetUID() != ""; !a.stored {
		err = errors.Join(err, errors.Join(unknown...))
		unknown = nil
	}
	for _, field := range unknown {
		q.unused[field.Error()+" of "+document.Kind]++
	}
	switch class := a.object.(type) {
	case *schedulingv1.PriorityClass:
		q.priorityClasses = append(q.priorityClasses, class)
		return err
	case *nodev1.RuntimeClass:
		q.runtimeClasses = append(q.runtimeClasses, class)
		return err
	}
	if a.object.GetName() == "" {
		a.object.SetName(strings.TrimSuffix(a.object.GetGenerateName(), "-"))
	}
	faults := admission.CompleteMeta(a.object, true)
	a.workload, _ = podtemplate.Of(a.object)
	err = errors.Join(err, faults.ToAggregate())
	if i := slices.IndexFunc(q.asked, func(other *asked) bool { return other.about == a.about && other.name() == a.name() }); i >= 0 {
		if a.stored && q.asked[i].object.GetUID() == a.object.GetUID() {
			return nil
		}
		err = errors.Join(err, fmt.Errorf("a second %s %s", a.about.Kind, a.name()))
	}
	q.asked = append(q.asked, a)
	return err
}

// removeOwned removes what a controller makes of a workload of the question.
func (q *question) removeOwned() {
	is := func(of metav1.Object, kind, name string) bool {
		return slices.ContainsFunc(q.asked, func(a *asked) bool {
			return a.about.Kind == kind && a.object.GetName() == name && a.object.GetNamespace() == of.GetNamespace()
		})
	}
	q.asked = slices.DeleteFunc(slices.Clone(q.asked), func(a *asked) bool {
		owner := metav1.GetControllerOf(a.object)
		if owner == nil {
			return false
		}
		deployment, hashed := strings.CutSuffix(owner.Name, "-"+a.object.GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey])
		return is(a.object, owner.Kind, owner.Name) || hashed && owner.Kind == "ReplicaSet" && is(a.object, "Deployment", deployment)
	})
}

func (a *asked) leaveOut(what string) {
	if !slices.Contains(a.leftOut, what) {
		a.leftOut = append(a.leftOut, what)
	}
}

// expand makes the pods of what is asked for: count of them, or the replicas of the
// workload if that is 0. A DaemonSet has one on each of the nodes on which it runs.
func (a *asked) expand(count int, nodes []*v1.Node) {
	w := a.workload
	if w == nil {
		a.pods = []cycle.Alike{{Pod: a.object.(*v1.Pod), Count: cmp.Or(count, 1)}}
		return
	}
	for _, claim := range w.Claims {
		a.leaveOut("the claim of volumeClaimTemplate " + claim.Name)
	}
	count = cmp.Or(count, w.Pods)
	switch {
	case w.Kind == "DaemonSet":
		for i, node := range nodes {
			if pod := w.PodOn(i, node); pod != nil {
				a.pods = append(a.pods, cycle.Alike{Pod: pod, Count: 1})
			}
		}
	case w.Alike():
		a.pods = []cycle.Alike{{Pod: w.Pod(0), Count: count}}
	default:
		for n := range min(count, cycle.MaxWhatIf+1) {
			a.pods = append(a.pods, cycle.Alike{Pod: w.Pod(n), Count: 1})
		}
	}
	for _, pods := range a.pods {
		pods.Pod.Name = a.object.GetName()
	}
}

// count is the number of pods.
func (a *asked) count() (n int) {
	for _, pods := range a.pods {
		n += pods.Count
	}
	return n
}

// complete makes the pods new pods as an API server would. cluster finds a
// PriorityClass that no document has; nil: it is unknown. The error joins all faults.
func (q *question) complete(ctx context.Context, cluster func(context.Context, string) (*schedulingv1.PriorityClass, error)) (faults, failed error) {
	classes := admission.NewClasses()
	var all field.ErrorList
	for _, class := range q.priorityClasses {
		if found := classes.AddPriorityClass(class); class.UID == "" { // an API server has admitted the others
			all = append(all, found...)
		}
	}
	for _, class := range q.runtimeClasses {
		all = append(all, classes.AddRuntimeClass(class)...)
	}
	named := []error{all.ToAggregate()}
	for _, a := range q.asked {
		for _, pods := range a.pods {
			found, err := q.completePod(ctx, classes, a, pods.Pod, cluster)
			if err != nil {
				return nil, err
			}
			place := ""
			if len(q.asked) > 1 {
				place = a.about.Kind + " " + a.name()
			}
			if named = append(named, manifest.At(place, found.ToAggregate())); len(found) > 0 {
				break // the other pods have the same
			}
		}
	}
	return errors.Join(named...), nil
}

func (a *asked) name() string { return a.object.GetNamespace() + "/" + a.object.GetName() }

func (q *question) completePod(ctx context.Context, classes *admission.Classes, a *asked, pod *v1.Pod, cluster func(context.Context, string) (*schedulingv1.PriorityClass, error)) (faults field.ErrorList, failed error) {
	a.detach(pod)
	if len(pod.Spec.Containers) == 0 {
		faults = append(faults, field.Required(field.NewPath("spec", "containers"), ""))
	}
	if a.stored && a.workload == nil && pod.Spec.Priority != nil {
		admission.CompleteStored(pod)
		return append(faults, admission.CompleteMeta(pod, true)...), nil
	}
	unknown, err := q.addPriorityClass(ctx, classes, pod, cluster)
	if err != nil {
		return nil, err
	}
	q.leaveOutRuntime(a, pod)
	faults = append(append(unknown, faults...), admission.CompleteMeta(pod, true)...)
	return append(faults, classes.CompletePod(pod)...), nil
}

// detach removes what only a pod in a cluster has, and what the answer does not regard.
func (a *asked) detach(pod *v1.Pod) {
	pod.UID, pod.ResourceVersion, pod.CreationTimestamp, pod.DeletionTimestamp = "", "", metav1.Time{}, nil
	pod.Status = v1.PodStatus{}
	spec := &pod.Spec
	if spec.NodeName != "" {
		a.leaveOut("the node " + spec.NodeName + " of spec.nodeName")
		spec.NodeName = ""
	}
	if len(spec.SchedulingGates) > 0 {
		spec.SchedulingGates = nil
		a.leaveOut("the scheduling gates")
	}
	if spec.SchedulingGroup != nil {
		spec.SchedulingGroup = nil
		a.leaveOut("the PodGroup: the pods are tried one by one")
	}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool {
		if v.Ephemeral == nil {
			return false
		}
		a.leaveOut("the claim of the ephemeral volume " + v.Name)
		return true
	})
	spec.ResourceClaims = slices.DeleteFunc(spec.ResourceClaims, func(c v1.PodResourceClaim) bool {
		if c.ResourceClaimTemplateName == nil {
			return false
		}
		a.leaveOut("the claim of ResourceClaimTemplate " + *c.ResourceClaimTemplateName)
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

// addPriorityClass adds the class of a pod where no document has it.
func (q *question) addPriorityClass(ctx context.Context, classes *admission.Classes, pod *v1.Pod, cluster func(context.Context, string) (*schedulingv1.PriorityClass, error)) (faults field.ErrorList, failed error) {
	name := pod.Spec.PriorityClassName
	given := slices.ContainsFunc(q.priorityClasses, func(c *schedulingv1.PriorityClass) bool { return c.Name == name })
	if given || name == "" || name == podspec.SystemClusterCritical || name == podspec.SystemNodeCritical {
		return nil, nil
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, PreemptionPolicy: pod.Spec.PreemptionPolicy}
	if pod.Spec.Priority != nil { // a pod of the cluster
		class.Value = *pod.Spec.Priority
	} else if class, failed = cluster(ctx, name); failed != nil {
		return nil, failed
	} else if class == nil {
		pod.Spec.PriorityClassName = "" // this fault is the only one of it
		return field.ErrorList{field.Invalid(field.NewPath("spec", "priorityClassName"), name, "no running pod has this PriorityClass: add it to the file")}, nil
	}
	q.priorityClasses = append(q.priorityClasses, class)
	return classes.AddPriorityClass(class), nil
}

func (q *question) leaveOutRuntime(a *asked, pod *v1.Pod) {
	name := pod.Spec.RuntimeClassName
	if name == nil || slices.ContainsFunc(q.runtimeClasses, func(c *nodev1.RuntimeClass) bool { return c.Name == *name }) {
		return
	}
	pod.Spec.RuntimeClassName = nil
	if len(pod.Spec.Overhead) == 0 { // a pod of the cluster has it
		a.leaveOut("the overhead and the nodes of RuntimeClass " + *name)
	}
}
