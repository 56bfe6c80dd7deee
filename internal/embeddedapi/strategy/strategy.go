// Package strategy prepares, defaults, validates and prints objects by Kubernetes' own code: the strategies of its
// registry, its defaults, its printers and its LimitRanger. It takes and returns objects of the served versions, and
// stores nothing.
//
// Kubernetes' strategies see an object as kube-apiserver's do: with its defaults, in the internal version, and with the
// request in the context. What they leave gets its defaults again, as when kube-apiserver reads it from etcd.
package strategy

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// whole writes an object but its status.
type whole interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// Strategy prepares the writes of one kind of objects, and prints them.
type Strategy struct {
	whole
	kind   schema.GroupVersionKind            // in whose version clients speak
	stored schema.GroupVersion                // in which objects are taken and returned
	parts  map[string]rest.RESTUpdateStrategy // by subresource
}

// administrator sends all requests: every known user of the embedded API may do everything.
var administrator = user.DefaultInfo{Name: "system:admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// request adds to a context what Kubernetes' strategies read of a request. What they log is for the developers of Kubernetes: where
// their two kinds of validation differ, which a client could make them say at will.
func (s *Strategy) request(ctx context.Context, sub string, object Object) context.Context {
	ctx = klog.NewContext(ctx, logr.Discard())
	ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{IsResourceRequest: true, APIGroup: s.kind.Group, APIVersion: s.kind.Version,
		Subresource: sub, Namespace: object.GetNamespace(), Name: object.GetName()})
	return genericrequest.WithUser(genericrequest.WithNamespace(ctx, object.GetNamespace()), &administrator)
}

// SetDefaults sets the fields of an object that a client left empty, in place.
func SetDefaults(object runtime.Object) { legacyscheme.Scheme.Default(object) }

// Setter sets defaults.
type Setter struct{}

// Default is SetDefaults.
func (Setter) Default(object runtime.Object) { SetDefaults(object) }

// internal returns a copy of an object in the internal version.
func internal(object runtime.Object) (runtime.Object, error) {
	return legacyscheme.Scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
}

// external returns an internal object, which it takes over, in a version, with its defaults.
func external(object runtime.Object, version schema.GroupVersion) (Object, error) {
	converted, err := legacyscheme.Scheme.UnsafeConvertToVersion(object, version)
	if err != nil {
		return nil, err
	}
	SetDefaults(converted)
	return converted.(Object), nil
}

// Convert returns a copy of an object in another version.
func Convert(object Object, version schema.GroupVersion) (Object, error) {
	between, err := internal(object)
	if err != nil {
		return nil, err
	}
	return external(between, version)
}

// Create returns a new object as it is to be stored. It is rest.BeforeCreate but for the bound of faults.
func (s *Strategy) Create(ctx context.Context, object Object) (Object, error) {
	made, err := internal(object)
	if err != nil {
		return nil, err
	}
	ctx = s.request(ctx, "", object)
	s.whole.PrepareForCreate(ctx, made)
	if err := s.refusal(made, rest.ValidateCreate(ctx, made, s.whole)); err != nil {
		return nil, err
	}
	warn(ctx, s.whole.WarningsOnCreate(ctx, made))
	s.whole.Canonicalize(made)
	return external(made, s.stored)
}

// Update returns an object as it is to be stored in place of old. What the server alone writes stays as it is in old. A
// subresource without a strategy of its own is written as the whole object is. It is rest.BeforeUpdate but for the bound of faults.
func (s *Strategy) Update(ctx context.Context, sub string, object, old Object) (Object, error) {
	before, err := internal(old)
	if err != nil {
		return nil, err
	}
	next, err := internal(object)
	if err != nil {
		return nil, err
	}
	part := s.part(sub)
	ctx = s.request(ctx, sub, object)
	part.PrepareForUpdate(ctx, next, before)
	keep(next.(metav1.Object), before.(metav1.Object))
	if err := s.refusal(next, rest.ValidateUpdate(ctx, next, before, part)); err != nil {
		return nil, err
	}
	warn(ctx, part.WarningsOnUpdate(ctx, next, before))
	part.Canonicalize(next)
	return external(next, s.stored)
}

// keep restores what an update never changes, whatever a strategy did.
func keep(next, before metav1.Object) {
	next.SetUID(before.GetUID())
	next.SetCreationTimestamp(before.GetCreationTimestamp())
	next.SetDeletionTimestamp(before.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
}

// mostFaults is how many faults a refusal names. The text of n faults takes n² time to be joined.
const mostFaults = 300

// refusal is the error for the faults of an internal object, nil without any.
func (s *Strategy) refusal(object runtime.Object, faults field.ErrorList) error {
	if len(faults) == 0 {
		return nil
	}
	kinds, _, err := s.whole.ObjectKinds(object)
	if err != nil {
		return err
	}
	if rest := len(faults) - mostFaults; rest > 0 {
		faults = append(faults[:mostFaults:mostFaults], field.Invalid(field.NewPath("..."), field.OmitValueType{}, fmt.Sprintf("and %d other faults", rest)))
	}
	return apierrors.NewInvalid(kinds[0].GroupKind(), object.(metav1.Object).GetName(), faults)
}

func warn(ctx context.Context, texts []string) {
	for _, text := range texts {
		warning.AddWarning(ctx, "", text)
	}
}

func (s *Strategy) part(sub string) rest.RESTUpdateStrategy {
	if part := s.parts[sub]; part != nil {
		return part
	}
	return s.whole
}

// Has reports whether a subresource has a strategy of its own.
func (s *Strategy) Has(sub string) bool { return s.parts[sub] != nil }

// Orphans reports whether a deletion that names no policy keeps the dependents.
func (s *Strategy) Orphans(object Object) bool {
	collected, known := s.whole.(rest.GarbageCollectionDeleteStrategy)
	return known && collected.DefaultGarbageCollectionPolicy(s.request(context.Background(), "", object)) == rest.OrphanDependents
}

// Upserts reports whether an update makes an object that is not there.
func (s *Strategy) Upserts() bool { return s.whole.AllowCreateOnUpdate(context.Background()) }

// Unconditional reports whether an update needs no resourceVersion of what it changes.
func (s *Strategy) Unconditional() bool {
	return s.whole.AllowUnconditionalUpdate(context.Background())
}

// Reset are the fields that a write of a subresource, or of the whole object, leaves as they are.
func (s *Strategy) Reset(sub string) map[fieldpath.APIVersion]fieldpath.Filter {
	if filtered, is := s.part(sub).(rest.ResetFieldsFilterStrategy); is {
		return filtered.GetResetFieldsFilter()
	}
	if reset, is := s.part(sub).(rest.ResetFieldsStrategy); is {
		return fieldpath.NewExcludeFilterSetMap(reset.GetResetFields())
	}
	return nil
}
