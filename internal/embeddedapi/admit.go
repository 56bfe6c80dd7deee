package embeddedapi

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/embeddedapi/quota"
	"github.com/evictd/evictd/internal/embeddedapi/store"
	podvalidation "github.com/evictd/evictd/internal/embeddedapi/validation"
)

// admitter applies defaults to an object and validates it. Old is nil for a new object.
type admitter func(a *API, object, old store.Object) utilvalidation.ErrorList

// classes are the defaults of pods and claims, computed again when a class has changed.
type classes struct {
	mu        sync.Mutex
	revisions [3]uint64
	made      *admission.Classes
}

func (a *API) currentClasses() *admission.Classes {
	priorities, runtimes, storage := a.kindOf("PriorityClass").table, a.kindOf("RuntimeClass").table, a.kindOf("StorageClass").table
	a.classes.mu.Lock()
	defer a.classes.mu.Unlock()
	revisions := [3]uint64{priorities.Revision(), runtimes.Revision(), storage.Revision()}
	if a.classes.made == nil || a.classes.revisions != revisions {
		a.classes.revisions = revisions
		a.classes.made = a.classesWithout("")
	}
	return a.classes.made
}

// classesWithout leaves out one PriorityClass. Stored classes were validated before.
func (a *API) classesWithout(name string) *admission.Classes {
	made := admission.NewClasses()
	copies(a.kindOf("PriorityClass"), func(c *schedulingv1.PriorityClass) {
		if c.Name != name {
			made.AddPriorityClass(c)
		}
	})
	copies(a.kindOf("RuntimeClass"), func(c *nodev1.RuntimeClass) { made.AddRuntimeClass(c) })
	copies(a.kindOf("StorageClass"), func(c *storagev1.StorageClass) { made.AddStorageClass(c) })
	return made
}

func copies[T any](k *kind, do func(T)) {
	objects, _ := k.table.List("")
	for _, o := range objects {
		do(o.DeepCopyObject().(T))
	}
}

// refusal is the error for faults: 403 for what an admission plugin of
// kube-apiserver would refuse, 422 for what is invalid, each fault once; nil where there are none.
func refusal(k *kind, name string, faults utilvalidation.ErrorList) error {
	if len(faults) == 0 {
		return nil
	}
	plugins := []string{"spec.priorityClassName", "spec.priority", "spec.preemptionPolicy", "spec.runtimeClassName", "spec.overhead", "globalDefault"}
	for _, fault := range faults {
		if slices.Contains(plugins, fault.Field) && fault.Type != utilvalidation.ErrorTypeNotSupported {
			return apierrors.NewForbidden(k.groupResource(), cmp.Or(name, "Unknown"), errors.New(fault.Detail))
		}
	}
	seen := map[string]bool{}
	faults = slices.DeleteFunc(faults, func(fault *utilvalidation.Error) bool {
		text := fault.Error()
		again := seen[text]
		seen[text] = true
		return again
	})
	return apierrors.NewInvalid(k.stored().GroupKind(), name, faults)
}

func admitNamespace(_ *API, object, old store.Object) utilvalidation.ErrorList {
	namespace := object.(*v1.Namespace)
	admission.CompleteNamespace(namespace)
	if old == nil {
		namespace.Status = v1.NamespaceStatus{Phase: v1.NamespaceActive}
	} else {
		namespace.Spec.Finalizers = slices.Clone(old.(*v1.Namespace).Spec.Finalizers) // only /finalize changes them
	}
	return metav1validation.ValidateLabels(map[string]string{v1.LabelMetadataName: namespace.Name}, utilvalidation.NewPath("metadata", "labels"))
}

func admitPriorityClass(a *API, object, old store.Object) utilvalidation.ErrorList {
	class := object.(*schedulingv1.PriorityClass)
	faults := a.classesWithout(class.Name).AddPriorityClass(class)
	if old == nil {
		class.Generation = 1
	}
	if before, ok := old.(*schedulingv1.PriorityClass); ok {
		faults = slices.DeleteFunc(faults, func(fault *utilvalidation.Error) bool { return fault.Field != "globalDefault" })
		if class.Value != before.Value {
			faults = append(faults, utilvalidation.Forbidden(utilvalidation.NewPath("value"), "may not be changed in an update"))
		}
		faults = append(faults, same("preemptionPolicy", class.PreemptionPolicy, before.PreemptionPolicy)...)
	}
	return faults
}

// same refuses a change of an immutable field.
func same(name string, value, before any) utilvalidation.ErrorList {
	return validation.ValidateImmutableField(value, before, utilvalidation.NewPath(name))
}

func admitRuntimeClass(_ *API, object, old store.Object) utilvalidation.ErrorList {
	class := object.(*nodev1.RuntimeClass)
	faults := admission.NewClasses().AddRuntimeClass(class)
	if class.Handler == "" {
		faults = append(faults, utilvalidation.Required(utilvalidation.NewPath("handler"), ""))
	}
	if before, ok := old.(*nodev1.RuntimeClass); ok {
		faults = append(faults, same("handler", class.Handler, before.Handler)...)
	}
	return faults
}

func admitStorageClass(_ *API, object, old store.Object) (faults utilvalidation.ErrorList) {
	class := object.(*storagev1.StorageClass)
	admission.NewClasses().AddStorageClass(class)
	if class.Provisioner == "" {
		faults = append(faults, utilvalidation.Required(utilvalidation.NewPath("provisioner"), ""))
	}
	if before, ok := old.(*storagev1.StorageClass); ok {
		faults = append(faults, same("provisioner", class.Provisioner, before.Provisioner)...)
		faults = append(faults, same("parameters", class.Parameters, before.Parameters)...)
		faults = append(faults, same("volumeBindingMode", class.VolumeBindingMode, before.VolumeBindingMode)...)
	}
	return faults
}

// admitNode admits a node; a new one may have a status. Later the lifecycle controller
// sets its taints.
func admitNode(_ *API, object, old store.Object) utilvalidation.ErrorList {
	node := object.(*v1.Node)
	if before, ok := old.(*v1.Node); ok {
		return podvalidation.Node(node, before)
	}
	admission.CompleteNode(node)
	return podvalidation.Node(node, nil)
}

// checkStatus checks a change of a status.
func checkStatus(object, old store.Object) utilvalidation.ErrorList {
	switch o := object.(type) {
	case *v1.Pod:
		completeStatus(o, old.(*v1.Pod))
		return podvalidation.PodStatus(o, old.(*v1.Pod))
	case *v1.Node:
		return podvalidation.Node(o, old.(*v1.Node))
	case *policyv1.PodDisruptionBudget:
		return podvalidation.BudgetStatus(&o.Status)
	case *appsv1.Deployment:
		return podvalidation.DeploymentStatus(&o.Status, &old.(*appsv1.Deployment).Status)
	}
	return nil
}

// completeStatus keeps what an older kubelet leaves out of the status of a pod.
func completeStatus(pod, before *v1.Pod) {
	zeroed(&pod.Status.QOSClass, before.Status.QOSClass)
	zeroed(&pod.Status.ObservedGeneration, before.Status.ObservedGeneration)
	keep(&pod.Status.ExtendedResourceClaimStatus, before.Status.ExtendedResourceClaimStatus)
	if pod.Status.ResourceClaimStatuses == nil {
		pod.Status.ResourceClaimStatuses = before.Status.ResourceClaimStatuses
	}
	seen := map[v1.PodConditionType]int{}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		nth := 0
		for _, was := range before.Status.Conditions {
			if was.Type != c.Type {
				continue
			}
			if nth == seen[c.Type] {
				zeroed(&c.ObservedGeneration, was.ObservedGeneration)
			}
			nth++
		}
		seen[c.Type]++
	}
}

func zeroed[T comparable](field *T, before T) {
	if *field == *new(T) {
		*field = before
	}
}

func admitVolume(_ *API, object, old store.Object) utilvalidation.ErrorList {
	volume := object.(*v1.PersistentVolume)
	admission.CompleteVolume(volume)
	if old == nil {
		volume.Status = v1.PersistentVolumeStatus{Phase: v1.VolumePending, LastPhaseTransitionTime: new(metav1.Now().Rfc3339Copy())}
	}
	return nil
}

func admitClaim(a *API, object, old store.Object) (faults utilvalidation.ErrorList) {
	claim, path := object.(*v1.PersistentVolumeClaim), utilvalidation.NewPath("spec")
	if old == nil {
		a.currentClasses().CompleteClaim(claim)
		claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
	}
	if len(claim.Spec.AccessModes) == 0 {
		faults = append(faults, utilvalidation.Required(path.Child("accessModes"), "at least 1 access mode is required"))
	}
	amount, requested := claim.Spec.Resources.Requests[v1.ResourceStorage]
	switch at := path.Child("resources").Key(string(v1.ResourceStorage)); {
	case !requested:
		faults = append(faults, utilvalidation.Required(at, ""))
	case amount.Sign() <= 0:
		faults = append(faults, utilvalidation.Invalid(at, amount.String(), "must be greater than zero"))
	}
	if before, ok := old.(*v1.PersistentVolumeClaim); ok {
		faults = append(faults, checkClaimChange(claim, before)...)
	}
	return faults
}

// checkClaimChange follows ValidatePersistentVolumeClaimUpdate of Kubernetes' core validation.
func checkClaimChange(claim, before *v1.PersistentVolumeClaim) (faults utilvalidation.ErrorList) {
	path, now, was := utilvalidation.NewPath("spec"), claim.Spec.DeepCopy(), before.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = now.VolumeName
	}
	if was.StorageClassName == nil && before.Annotations[v1.BetaStorageClassAnnotation] == "" {
		was.StorageClassName = now.StorageClassName
	}
	if claim.Status.Phase == v1.ClaimBound {
		was.Resources.Requests, was.VolumeAttributesClassName = now.Resources.Requests, now.VolumeAttributesClassName
	}
	if !apiequality.Semantic.DeepEqual(now, was) {
		faults = append(faults, utilvalidation.Forbidden(path, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	size, capacity := claim.Spec.Resources.Requests.Storage(), before.Status.Capacity.Storage()
	if size.Cmp(*before.Spec.Resources.Requests.Storage()) < 0 && size.Cmp(*capacity) <= 0 {
		faults = append(faults, utilvalidation.Forbidden(path.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	return faults
}

func admitService(_ *API, object, old store.Object) utilvalidation.ErrorList {
	service := object.(*v1.Service)
	if old == nil {
		service.Status = v1.ServiceStatus{}
	}
	return nil
}

// admitWorkload empties the status of a new object, checks the template of its pods, and keeps the selector of
// a controller of apps/v1.
func admitWorkload(_ *API, object, old store.Object) utilvalidation.ErrorList {
	if old == nil {
		fieldOf(object, "Status").SetZero()
	}
	faults := checkWorkload(object)
	selector := fieldOf(object, "Spec").FieldByName("Selector")
	if old == nil || object.GetObjectKind().GroupVersionKind().Group != appsv1.GroupName || !selector.IsValid() {
		return faults
	}
	return append(faults, validation.ValidateImmutableField(selector.Interface(), fieldOf(old, "Spec").FieldByName("Selector").Interface(), utilvalidation.NewPath("spec", "selector"))...)
}

// admitDaemonSet counts the changes of the template in an annotation, by which
// kube-controller-manager labels pods.
func admitDaemonSet(a *API, object, old store.Object) utilvalidation.ErrorList {
	set, template := object.(*appsv1.DaemonSet), int64(1)
	if before, ok := old.(*appsv1.DaemonSet); ok {
		template, _ = strconv.ParseInt(before.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		if !apiequality.Semantic.DeepEqual(before.Spec.Template, set.Spec.Template) {
			template++
		}
	}
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(template, 10))
	return admitWorkload(a, object, old)
}

func admitBudget(_ *API, object, old store.Object) utilvalidation.ErrorList {
	budget := object.(*policyv1.PodDisruptionBudget)
	if old == nil {
		budget.Status = policyv1.PodDisruptionBudgetStatus{}
	}
	return podvalidation.Budget(&budget.Spec)
}

func admitPod(a *API, object, old store.Object) utilvalidation.ErrorList {
	pod := object.(*v1.Pod)
	if before, ok := old.(*v1.Pod); ok {
		return checkPodChange(pod, before)
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	for _, limits := range a.limitRanges(pod.Namespace) {
		quota.SetDefaults(limits, pod)
	}
	faults := a.currentClasses().SetPod(pod)
	if len(pod.Spec.SchedulingGates) > 0 {
		setCondition(pod, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates"})
	}
	faults = append(faults, checkPriority(&pod.Spec)...)
	return append(faults, podvalidation.Pod(pod, nil)...)
}

// checkPriority refuses what only a PriorityClass may give.
func checkPriority(spec *v1.PodSpec) (faults utilvalidation.ErrorList) {
	path := utilvalidation.NewPath("spec")
	if spec.PriorityClassName == "" && ptr.Deref(spec.Priority, 0) != 0 {
		faults = append(faults, utilvalidation.Forbidden(path.Child("priority"), "must not be provided without a PriorityClass"))
	}
	if spec.PriorityClassName == "" && ptr.Deref(spec.PreemptionPolicy, v1.PreemptLowerPriority) != v1.PreemptLowerPriority {
		faults = append(faults, utilvalidation.Forbidden(path.Child("preemptionPolicy"), "must not be provided without a PriorityClass"))
	}
	return faults
}
