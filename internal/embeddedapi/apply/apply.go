// Package apply merges applied configurations into objects and keeps the managers of
// fields, by apimachinery's field manager. The structure of the kinds is client-go's, which is
// parsed when it is first needed.
//
// Only an object that was applied has managers. At the first application to an object without
// any, the manager before-first-apply gets all fields that the object has, but those that admission set.
package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"
)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Managers keeps the managers of fields. Any number of goroutines may use it.
type Managers struct {
	scheme   *runtime.Scheme
	defaults runtime.ObjectDefaulter
	unset    func(Object)
	types    func() managedfields.TypeConverter

	mu   sync.Mutex
	made map[part]*managedfields.FieldManager
}

// part is a kind, or a subresource of it.
type part struct {
	schema.GroupVersionKind
	sub string
}

// New keeps the managers of objects of a scheme. Defaults are set after an application, and unset
// removes from an object what admission has set.
func New(scheme *runtime.Scheme, defaults runtime.ObjectDefaulter, unset func(Object)) *Managers {
	return &Managers{scheme: scheme, defaults: defaults, unset: unset, made: map[part]*managedfields.FieldManager{},
		types: sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme) })}
}

func (m *Managers) of(p part, by Writer) (*managedfields.FieldManager, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if made := m.made[p]; made != nil {
		return made, nil
	}
	gv := p.GroupVersion()
	made, err := managedfields.NewDefaultFieldManager(m.types(), m.scheme, m.defaults, m.scheme, p.GroupVersionKind, gv, p.sub, by.Reset)
	if err == nil {
		m.made[p] = made
	}
	return made, err
}

// Writer is what changes a part of an object.
type Writer struct {
	Name  string // of the manager
	Kind  schema.GroupVersionKind
	Sub   string                                    // the subresource, empty for none
	Reset map[fieldpath.APIVersion]fieldpath.Filter // without the fields that the write does not change
}

// Apply merges a configuration, YAML or JSON, into an object, which is a blank one where there is
// none. The error is a conflict where another manager has another value and force is false.
func (m *Managers) Apply(by Writer, live Object, configuration []byte, force bool) (Object, error) {
	manager, err := m.of(part{by.Kind, by.Sub}, by)
	if err != nil {
		return nil, err
	}
	applied := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(configuration, &applied.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if len(live.GetManagedFields()) == 0 && live.GetUID() != "" {
		live = m.managedBefore(manager, by, live)
	}
	merged, err := manager.Apply(live, applied, by.Name, force)
	if known := apierrors.APIStatus(nil); err != nil && !errors.As(err, &known) {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: err.Error()}}
	}
	if err != nil {
		return nil, err
	}
	merged.GetObjectKind().SetGroupVersionKind(by.Kind)
	return merged.(Object), nil
}

// beforeFirstApply manages what was there before an application, as in apimachinery.
const beforeFirstApply = "before-first-apply"

// managedBefore is an object without managers, with that of the fields that clients have set.
func (m *Managers) managedBefore(manager *managedfields.FieldManager, by Writer, live Object) Object {
	blank, err := m.scheme.New(by.Kind)
	if err != nil {
		return live
	}
	blank.GetObjectKind().SetGroupVersionKind(by.Kind)
	given := live.DeepCopyObject().(Object)
	m.unset(given)
	managed := live.DeepCopyObject().(Object)
	managed.SetManagedFields(manager.UpdateNoErrors(blank, given, beforeFirstApply).(Object).GetManagedFields())
	return managed
}

// Duplicates returns the error for fields that a configuration has twice.
func Duplicates(configuration []byte) error {
	return yaml.UnmarshalStrict(configuration, &map[string]any{})
}

// Update returns next with its managers, where the object has any: the writer manages the
// fields that next changes in live.
func (m *Managers) Update(by Writer, live, next Object) Object {
	if by.Sub == "scale" && hasNoReplicas(next) && !hasNoReplicas(live) {
		next.SetManagedFields(m.withoutReplicas(by, live))
		return next
	}
	if len(live.GetManagedFields()) == 0 {
		next.SetManagedFields(nil)
		return next
	}
	manager, err := m.of(part{by.Kind, by.Sub}, by)
	if err != nil || by.Sub == "scale" && !replicasManaged(live) {
		next.SetManagedFields(live.GetManagedFields())
		return next
	}
	return manager.UpdateNoErrors(live, next, by.Name).(Object)
}

// hasNoReplicas says that spec.replicas is 0. A Scale leaves 0 out, so that the field has no manager then.
func hasNoReplicas(object Object) bool {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	replicas, found, _ := unstructured.NestedInt64(fields, replicasPath...)
	return err == nil && found && replicas == 0
}

var replicasPath = []string{"spec", "replicas"}

// withoutReplicas are the managers of an object, none of spec.replicas.
func (m *Managers) withoutReplicas(by Writer, live Object) (kept []metav1.ManagedFieldsEntry) {
	if manager, err := m.of(part{by.Kind, ""}, by); err == nil && len(live.GetManagedFields()) == 0 {
		live = m.managedBefore(manager, by, live)
	}
	path := fieldpath.NewSet(fieldpath.MakePathOrDie("spec", "replicas"))
	for _, entry := range live.DeepCopyObject().(Object).GetManagedFields() {
		var fields fieldpath.Set
		if entry.FieldsV1 == nil || fields.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			continue
		}
		rest := fields.Difference(path)
		if text, err := rest.ToJSON(); err == nil && !rest.Empty() {
			entry.FieldsV1.SetRawBytes(text)
			kept = append(kept, entry)
		}
	}
	return kept
}

// replicasManaged says whether spec.replicas has a manager. A Scale has the managers of that field
// alone, and as other objects without managers it gets none by an update.
func replicasManaged(live Object) bool {
	path := fieldpath.MakePathOrDie("spec", "replicas")
	return slices.ContainsFunc(live.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		var fields fieldpath.Set
		return entry.FieldsV1 != nil && fields.FromJSON(entry.FieldsV1.GetRawReader()) == nil && fields.Has(path)
	})
}

// KeepTimes gives entries of next that differ from those of live in their time alone that of live.
func KeepTimes(live, next Object) {
	before, after := live.GetManagedFields(), next.GetManagedFields()
	for i := range min(len(before), len(after)) {
		was, is := before[i], after[i]
		was.Time, is.Time = nil, nil
		if fmt.Sprint(was) == fmt.Sprint(is) {
			after[i].Time = before[i].Time
		}
	}
	next.SetManagedFields(after)
}

// ManagerOf is the name of a client that names no manager: its user agent up to the first slash, as
// in kube-apiserver.
func ManagerOf(userAgent string) string {
	var name strings.Builder
	before, _, _ := strings.Cut(userAgent, "/")
	for _, r := range before {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > metav1validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(r)
	}
	return name.String()
}
