package embeddedapi

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
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

// checked is an admitter that validates. The check's second argument is nil for a new object.
func checked[T store.Object](check func(object, before T) utilvalidation.ErrorList) admitter {
	return func(_ *API, object, old store.Object) utilvalidation.ErrorList {
		before, _ := old.(T)
		return check(object.(T), before)
	}
}

// admitDriver counts the changes of the spec, from 0 on.
func admitDriver(_ *API, object, old store.Object) utilvalidation.ErrorList {
	driver := object.(*storagev1.CSIDriver)
	before, changed := old.(*storagev1.CSIDriver)
	if changed && !apiequality.Semantic.DeepEqual(driver.Spec, before.Spec) {
		driver.Generation++
	}
	return podvalidation.CSIDriver(driver, before)
}

// admitLease removes what only a coordinated election of a leader has, an alpha feature of Kubernetes.
func admitLease(_ *API, object, _ store.Object) utilvalidation.ErrorList {
	lease := object.(*coordinationv1.Lease)
	lease.Spec.Strategy, lease.Spec.PreferredHolder = nil, nil
	return podvalidation.Lease(lease)
}

func admitAttachment(_ *API, object, old store.Object) utilvalidation.ErrorList {
	attachment := object.(*storagev1.VolumeAttachment)
	before, changed := old.(*storagev1.VolumeAttachment)
	if !changed {
		attachment.Status = storagev1.VolumeAttachmentStatus{}
	}
	return podvalidation.VolumeAttachment(attachment, before)
}

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
	faults := metav1validation.ValidateLabels(map[string]string{v1.LabelMetadataName: namespace.Name}, utilvalidation.NewPath("metadata", "labels"))
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != v1.FinalizerKubernetes && !strings.Contains(string(finalizer), "/") {
			faults = append(faults, utilvalidation.Invalid(utilvalidation.NewPath("spec", "finalizers"), finalizer, "must be a standard finalizer or fully qualified"))
		}
	}
	return faults
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
	faults := append(admission.NewClasses().AddRuntimeClass(class), podvalidation.RuntimeClass(class)...)
	if before, ok := old.(*nodev1.RuntimeClass); ok {
		faults = append(faults, same("handler", class.Handler, before.Handler)...)
	}
	return faults
}

func admitStorageClass(_ *API, object, old store.Object) utilvalidation.ErrorList {
	class := object.(*storagev1.StorageClass)
	admission.NewClasses().AddStorageClass(class)
	before, _ := old.(*storagev1.StorageClass)
	return podvalidation.StorageClass(class, before)
}

// admitNode admits a node; a new one may have a status. Later the lifecycle controller
// sets its taints.
func admitNode(_ *API, object, old store.Object) utilvalidation.ErrorList {
	node := object.(*v1.Node)
	//lint:ignore SA1019 kube-apiserver drops both
	node.Spec.ConfigSource, node.Status.Config = nil, nil
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
	}
	return podvalidation.Status(object, old)
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
	before, _ := old.(*v1.PersistentVolume)
	return podvalidation.PersistentVolume(volume, before)
}

func admitClaim(a *API, object, old store.Object) (faults utilvalidation.ErrorList) {
	claim := object.(*v1.PersistentVolumeClaim)
	if old == nil {
		a.currentClasses().CompleteClaim(claim)
		claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
	}
	completeSource(&claim.Spec)
	faults = podvalidation.Claim(&claim.Spec)
	if before, ok := old.(*v1.PersistentVolumeClaim); ok {
		faults = append(faults, checkClaimChange(claim, before)...)
	}
	return faults
}

// completeSource gives a claim both fields of the source of its data, of which the first one can only name claims and
// snapshots.
func completeSource(spec *v1.PersistentVolumeClaimSpec) {
	if s := spec.DataSource; s != nil {
		group := ptr.Deref(s.APIGroup, "")
		if claim, snapshot := group == "" && s.Kind == "PersistentVolumeClaim", group == "snapshot.storage.k8s.io" && s.Kind == "VolumeSnapshot"; !claim && !snapshot {
			spec.DataSource = nil
		}
	}
	switch source, ref := spec.DataSource, spec.DataSourceRef; {
	case source != nil && ref == nil:
		spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && ptr.Deref(ref.Namespace, "") == "":
		spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
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
	faults = append(faults, same("volumeMode", claim.Spec.VolumeMode, before.Spec.VolumeMode)...)
	size, capacity := claim.Spec.Resources.Requests.Storage(), before.Status.Capacity.Storage()
	if size.Cmp(*before.Spec.Resources.Requests.Storage()) < 0 && size.Cmp(*capacity) <= 0 {
		faults = append(faults, utilvalidation.Forbidden(path.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	return faults
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
