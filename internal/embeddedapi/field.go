package embeddedapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// fieldSet are the fields of a kind that a selector may name.
type fieldSet map[string]func(store.Object) string

func field[T any](get func(T) string) func(store.Object) string {
	return func(o store.Object) string { return get(any(o).(T)) }
}

var metaFields = fieldSet{
	"metadata.name":      func(o store.Object) string { return o.GetName() },
	"metadata.namespace": func(o store.Object) string { return o.GetNamespace() },
}

var podFields = fieldSet{
	"spec.nodeName":            field(func(p *v1.Pod) string { return p.Spec.NodeName }),
	"spec.restartPolicy":       field(func(p *v1.Pod) string { return string(p.Spec.RestartPolicy) }),
	"spec.schedulerName":       field(func(p *v1.Pod) string { return p.Spec.SchedulerName }),
	"spec.serviceAccountName":  field(func(p *v1.Pod) string { return p.Spec.ServiceAccountName }),
	"spec.hostNetwork":         field(func(p *v1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) }),
	"status.phase":             field(func(p *v1.Pod) string { return string(p.Status.Phase) }),
	"status.podIP":             field(func(p *v1.Pod) string { return p.Status.PodIP }),
	"status.nominatedNodeName": field(func(p *v1.Pod) string { return p.Status.NominatedNodeName }),
}

var nodeFields = fieldSet{
	"spec.unschedulable": field(func(n *v1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) }),
}

var namespaceFields = fieldSet{
	"status.phase": field(func(n *v1.Namespace) string { return string(n.Status.Phase) }),
}

var serviceFields = fieldSet{
	"spec.clusterIP": field(func(s *v1.Service) string { return s.Spec.ClusterIP }),
	"spec.type":      field(func(s *v1.Service) string { return string(s.Spec.Type) }),
}

var replicaSetFields = fieldSet{
	"status.replicas": field(func(r *appsv1.ReplicaSet) string { return strconv.Itoa(int(r.Status.Replicas)) }),
}

var controllerFields = fieldSet{
	"status.replicas": field(func(r *v1.ReplicationController) string { return strconv.Itoa(int(r.Status.Replicas)) }),
}

// regardingFields are those of events.k8s.io, of the stored core Event.
var regardingFields = objectFields("regarding", "reportingController")

var eventFields = func() fieldSet {
	set := objectFields("involvedObject", "reportingComponent")
	set["source"] = field(eventSource)
	return set
}()

func objectFields(object, controller string) fieldSet {
	return fieldSet{
		object + ".kind":            field(func(e *v1.Event) string { return e.InvolvedObject.Kind }),
		object + ".namespace":       field(func(e *v1.Event) string { return e.InvolvedObject.Namespace }),
		object + ".name":            field(func(e *v1.Event) string { return e.InvolvedObject.Name }),
		object + ".uid":             field(func(e *v1.Event) string { return string(e.InvolvedObject.UID) }),
		object + ".apiVersion":      field(func(e *v1.Event) string { return e.InvolvedObject.APIVersion }),
		object + ".resourceVersion": field(func(e *v1.Event) string { return e.InvolvedObject.ResourceVersion }),
		object + ".fieldPath":       field(func(e *v1.Event) string { return e.InvolvedObject.FieldPath }),
		"reason":                    field(func(e *v1.Event) string { return e.Reason }),
		"type":                      field(func(e *v1.Event) string { return e.Type }),
		controller:                  field(func(e *v1.Event) string { return e.ReportingController }),
	}
}

func eventSource(e *v1.Event) string {
	return cmp.Or(e.Source.Component, e.ReportingController)
}

// filter is the selectors of a request.
type filter struct {
	kind            *kind
	namespace, name string
	labels          labels.Selector
	fields          fields.Selector
}

func newFilter(r *request, query url.Values) (*filter, error) {
	f := &filter{kind: r.kind, namespace: r.namespace, name: r.name}
	var err error
	if f.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if f.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, requirement := range f.fields.Requirements() {
		if f.kind.field(requirement.Field) == nil {
			known := slices.Sorted(maps.Keys(f.kind.fields))
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s; expected metadata.name, metadata.namespace %s",
				requirement.Field, strings.Join(known, ", ")))
		}
	}
	return f, nil
}

func (k *kind) field(name string) func(store.Object) string {
	if get := metaFields[name]; get != nil {
		return get
	}
	return k.fields[name]
}

// interest is the requirement that the fewest changes meet, as far as its form says.
func (f *filter) interest() store.Interest {
	exact := func(name, value string) store.Interest {
		return store.Interest{Attribute: name, Value: value, Of: f.kind.field(name)}
	}
	if f.name != "" {
		return exact("metadata.name", f.name)
	}
	requirements := f.fields.Requirements()
	slices.SortStableFunc(requirements, func(a, b fields.Requirement) int { return cmp.Compare(rank(a.Field), rank(b.Field)) })
	for _, r := range requirements {
		if r.Operator == selection.Equals || r.Operator == selection.DoubleEquals {
			return exact(r.Field, r.Value)
		}
	}
	required, _ := f.labels.Requirements()
	for _, r := range required {
		only := r.ValuesUnsorted()
		if len(only) == 1 && (r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals || r.Operator() == selection.In) {
			return store.Interest{Attribute: "metadata.labels/" + r.Key(), Value: only[0], Of: func(o store.Object) string { return o.GetLabels()[r.Key()] }}
		}
	}
	if f.namespace != "" {
		return exact("metadata.namespace", f.namespace)
	}
	return store.Interest{}
}

// rank puts the fields that few objects share first.
func rank(field string) int {
	switch field {
	case "metadata.name":
		return 0
	case "metadata.namespace":
		return 2
	}
	return 1
}

// matches compares a stored object; nil does not match.
func (f *filter) matches(o store.Object) bool {
	return o != nil &&
		(f.namespace == "" || o.GetNamespace() == f.namespace) &&
		(f.name == "" || o.GetName() == f.name) &&
		f.labels.Matches(labels.Set(o.GetLabels())) &&
		f.fields.Matches(selectable{f.kind, o})
}

// selectable are the values of an object's selectable fields.
type selectable struct {
	kind   *kind
	object store.Object
}

func (s selectable) Has(name string) bool { return s.kind.field(name) != nil }

func (s selectable) Get(name string) string { return s.kind.field(name)(s.object) }
