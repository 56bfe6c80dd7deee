package embeddedapi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/strategy"
	"github.com/evictd/evictd/internal/podspec"
)

// plugin completes an object, or refuses it, as an admission plugin of kube-apiserver does before the strategy of the kind.
// Old is nil for a new object.
type plugin func(a *API, object, old store.Object) (utilvalidation.ErrorList, error)

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
		a.classes.made = a.newClasses()
	}
	return a.classes.made
}

// newClasses reads the stored classes, which were validated before.
func (a *API) newClasses() *admission.Classes {
	made := admission.NewClasses()
	copies(a.kindOf("PriorityClass"), func(c *schedulingv1.PriorityClass) { made.AddPriorityClass(c) })
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

// refusal is the error for faults: 403 for what an admission plugin of kube-apiserver refuses, 422 for what is invalid; nil if
// there are none.
func refusal(k *kind, name string, faults utilvalidation.ErrorList) error {
	if len(faults) == 0 {
		return nil
	}
	plugins := []string{"spec.priorityClassName", "spec.priority", "spec.preemptionPolicy", "spec.runtimeClassName", "spec.overhead", "globalDefault"}
	for _, fault := range faults {
		if slices.Contains(plugins, fault.Field) {
			return apierrors.NewForbidden(k.groupResource(), cmp.Or(name, "Unknown"), errors.New(fault.Detail))
		}
	}
	return apierrors.NewInvalid(k.stored().GroupKind(), name, faults)
}

func admitPriorityClass(a *API, object, _ store.Object) (faults utilvalidation.ErrorList, err error) {
	class := object.(*schedulingv1.PriorityClass)
	copies(a.kindOf("PriorityClass"), func(other *schedulingv1.PriorityClass) {
		if class.GlobalDefault && other.GlobalDefault && other.Name != class.Name {
			faults = append(faults, utilvalidation.Forbidden(utilvalidation.NewPath("globalDefault"),
				fmt.Sprintf("PriorityClass %s is already marked as default. Only one default can exist", other.Name)))
		}
	})
	return faults, nil
}

// admitNode taints a new node by its conditions. Later the lifecycle controller sets its taints.
func admitNode(_ *API, object, old store.Object) (utilvalidation.ErrorList, error) {
	if old == nil {
		admission.CompleteNode(object.(*v1.Node))
	}
	return nil, nil
}

func admitClaim(a *API, object, old store.Object) (utilvalidation.ErrorList, error) {
	if old == nil {
		a.currentClasses().CompleteClaim(object.(*v1.PersistentVolumeClaim))
	}
	return nil, nil
}

func admitPod(a *API, object, old store.Object) (utilvalidation.ErrorList, error) {
	pod := object.(*v1.Pod)
	if before, changed := old.(*v1.Pod); changed {
		keep(&pod.Spec.Priority, before.Spec.Priority)
		keep(&pod.Spec.PreemptionPolicy, before.Spec.PreemptionPolicy)
		keep(&pod.Spec.Resources, before.Spec.Resources) // as the strategy does later: the class depends on it
		class := pod.Status.QOSClass
		pod.Status.QOSClass = podspec.ComputeQOSClass(pod)
		admission.SetTolerations(pod)
		pod.Status.QOSClass = class
		return nil, nil
	}
	if err := strategy.SetLimits(a.limitRanges(pod.Namespace), pod); err != nil {
		return nil, err
	}
	return append(a.currentClasses().SetClasses(pod), checkPriority(&pod.Spec)...), nil
}

func keep[T any](field **T, before *T) {
	if *field == nil {
		*field = before
	}
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
