// Package admission completes objects as an API server would on their way in, and
// finds what it would refuse: defaults, priorities, overhead, tolerations, and the
// taints that controllers derive from a node's conditions. It knows those fields
// only that decide where a pod goes. Faults carry field paths; objects are
// completed in place. It looks nothing up and never schedules.
package admission

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Classes are the cluster-wide objects that admission refers to. They are added
// before the objects that name them.
type Classes struct {
	priority        map[string]*schedulingv1.PriorityClass
	defaultPriority *schedulingv1.PriorityClass // nil without a global default
	runtime         map[string]*nodev1.RuntimeClass
	defaultStorage  *storagev1.StorageClass // nil without a default class
}

// NewClasses returns what every cluster has: the two system priorities.
func NewClasses() *Classes {
	return &Classes{priority: systemPriorities(), runtime: map[string]*nodev1.RuntimeClass{}}
}

// CompleteMeta gives an object the namespace "default" and a uid made of its name
// where it has none, and checks that both names, and its labels, could be in a cluster.
func CompleteMeta(object metav1.Object, namespaced bool) (faults field.ErrorList) {
	path := field.NewPath("metadata")
	faults = CheckLabels(object.GetLabels(), path.Child("labels"))
	uid := object.GetName()
	if namespaced {
		object.SetNamespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault))
		uid = object.GetNamespace() + "/" + uid
		for _, why := range validation.IsDNS1123Label(object.GetNamespace()) {
			faults = append(faults, field.Invalid(path.Child("namespace"), object.GetNamespace(), why))
		}
	}
	object.SetUID(cmp.Or(object.GetUID(), types.UID(uid)))
	if object.GetName() == "" {
		return append(faults, field.Required(path.Child("name"), ""))
	}
	for _, why := range validation.IsDNS1123Subdomain(object.GetName()) {
		faults = append(faults, field.Invalid(path.Child("name"), object.GetName(), why))
	}
	return faults
}

// CheckLabels checks labels, or a selector of the same form, in the order of their keys.
func CheckLabels(labels map[string]string, path *field.Path) (faults field.ErrorList) {
	if faults = metav1validation.ValidateLabels(labels, path); len(faults) <= 1 {
		return faults
	}
	faults = nil
	for key, value := range InOrder(labels) {
		faults = append(faults, metav1validation.ValidateLabels(map[string]string{key: value}, path)...)
	}
	return faults
}

// InOrder walks a map in the order of its keys: what is found has the same order each time.
func InOrder[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// CompleteNamespace gives a namespace the label that carries its name.
func CompleteNamespace(namespace *v1.Namespace) {
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[v1.LabelMetadataName] = namespace.Name
}

// AddStorageClass completes a class. The youngest of several that are marked as
// default is the one.
func (c *Classes) AddStorageClass(class *storagev1.StorageClass) {
	class.VolumeBindingMode = new(ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate))
	if class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
		return
	}
	younger := func(a, b *storagev1.StorageClass) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	}
	if c.defaultStorage == nil || younger(class, c.defaultStorage) > 0 {
		c.defaultStorage = class
	}
}

// CompleteClaim gives a claim its volume mode, and the default storage class where
// it names none.
func (c *Classes) CompleteClaim(claim *v1.PersistentVolumeClaim) {
	claim.Spec.VolumeMode = new(ptr.Deref(claim.Spec.VolumeMode, v1.PersistentVolumeFilesystem))
	_, beta := claim.Annotations[v1.BetaStorageClassAnnotation]
	if claim.Spec.StorageClassName == nil && !beta && c.defaultStorage != nil {
		claim.Spec.StorageClassName = new(c.defaultStorage.Name)
	}
}

// CompleteController gives a ReplicationController without a selector the labels of its
// template.
func CompleteController(rc *v1.ReplicationController) {
	if len(rc.Spec.Selector) == 0 && rc.Spec.Template != nil {
		rc.Spec.Selector = rc.Spec.Template.Labels
	}
}

// CompleteVolume gives a volume its mode.
func CompleteVolume(volume *v1.PersistentVolume) {
	volume.Spec.VolumeMode = new(ptr.Deref(volume.Spec.VolumeMode, v1.PersistentVolumeFilesystem))
}

func checkAmounts(path *field.Path, amounts v1.ResourceList) (faults field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if q := amounts[name]; q.Sign() < 0 {
			faults = append(faults, field.Invalid(path.Key(string(name)), q.String(), "must be greater than or equal to 0"))
		}
	}
	return faults
}
