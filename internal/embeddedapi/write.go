package embeddedapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/evictd/evictd/internal/embeddedapi/apply"
	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/strategy"
)

// context carries the warnings of strategies to the client of the request.
func (r *request) context() context.Context {
	return warning.WithWarningRecorder(r.Context(), r)
}

func (r *request) post() (int, runtime.Object, error) {
	object, err := r.object()
	if err != nil {
		return 0, nil, err
	}
	object.SetManagedFields(nil)
	object, err = r.api.create(r.context(), r.kind, object, r.dryRun())
	return http.StatusCreated, object, err
}

// object decodes a body into the stored version.
func (r *request) object() (store.Object, error) {
	data, err := r.body()
	if err != nil {
		return nil, err
	}
	object := r.api.blank(r.kind.GroupVersionKind)
	if err := r.decode(data, r.Header.Get("Content-Type"), object, r.kind.GroupVersionKind); err != nil {
		return nil, err
	}
	if err := r.place(object); err != nil {
		return nil, err
	}
	return r.kind.received(object), nil
}

// place sets the namespace of the URL and checks that the object names no other one.
func (r *request) place(object store.Object) error {
	if object.GetNamespace() == "" || !r.kind.namespaced {
		object.SetNamespace(r.namespace)
	}
	switch {
	case r.kind.namespaced && r.namespace == "":
		return apierrors.NewBadRequest("an empty namespace may not be set when a resource name is provided")
	case object.GetNamespace() != r.namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	case r.name != "" && object.GetName() != r.name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", object.GetName(), r.name))
	}
	return nil
}

// nameAttempts bounds the attempts to generate an unused name.
const nameAttempts = 8

// create admits an object and stores it.
func (a *API) create(ctx context.Context, k *kind, object store.Object, dryRun bool) (store.Object, error) {
	generate := object.GetName() == "" && object.GetGenerateName() != ""
	for range nameAttempts {
		if generate {
			object.SetName(k.strategy.GenerateName(object.GetGenerateName()))
		}
		made, err := a.admitNew(ctx, k, object)
		if err == nil {
			err = a.admitUse(k, "", made, nil, put(k, nil, made, dryRun))
		}
		if !errors.Is(err, store.ErrChanged) {
			return made, err
		}
		if !generate {
			break
		}
	}
	return nil, apierrors.NewAlreadyExists(k.groupResource(), object.GetName())
}

// admitNew returns the object to be stored: with the fields that the server sets, and valid.
func (a *API) admitNew(ctx context.Context, k *kind, object store.Object) (store.Object, error) {
	if object.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	strategy.SetDefaults(object)
	rest.WipeObjectMetaSystemFields(object)
	rest.FillObjectMetaSystemFields(object)
	object.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	object.SetGeneration(0)
	if err := a.checkNamespace(k, object); err != nil {
		return nil, err
	}
	if err := a.plugIn(k, object, nil); err != nil {
		return nil, err
	}
	made, err := k.strategy.Create(ctx, object)
	if err != nil {
		return nil, err
	}
	return made, k.checkName(made.GetName())
}

// plugIn runs the admission plugin of a kind.
func (a *API) plugIn(k *kind, object, old store.Object) error {
	if k.plugin == nil {
		return nil
	}
	faults, err := k.plugin(a, object, old)
	if err != nil {
		return err
	}
	return refusal(k, object.GetName(), faults)
}

// change computes the new state of an object from the present one.
type change struct {
	kind     *kind
	key      store.Key
	sub      string                                       // subresource: "status" keeps all but the status and metadata
	manager  string                                       // manages the fields that the change sets; empty for a change of the server
	applied  bool                                         // next has set the managers
	internal bool                                         // the server's own: admitted already, status and spec together
	dryRun   bool                                         // nothing is stored
	differs  bool                                         // what next returns always differs from old
	next     func(old store.Object) (store.Object, error) // returns an object of its own
	missing  func() (store.Object, error)                 // makes the object where there is none; may be nil
}

func replaceBy(object store.Object) func(store.Object) (store.Object, error) {
	return func(store.Object) (store.Object, error) { return object.DeepCopyObject().(store.Object), nil }
}

// update makes a change, again after a conflict.
func (a *API) update(ctx context.Context, c change) (store.Object, error) {
	for ctx.Err() == nil {
		old := c.kind.table.Get(c.key)
		if old == nil && c.missing != nil {
			return c.missing()
		}
		if old == nil {
			return nil, apierrors.NewNotFound(c.kind.groupResource(), c.key.Name)
		}
		object, err := c.next(old)
		if err != nil {
			return nil, err
		}
		if object, err = a.admitChange(ctx, c, old, object); err != nil {
			return nil, err
		}
		apply.KeepTimes(old, object)
		if !c.differs && apiequality.Semantic.DeepEqual(old, object) {
			return old, nil
		}
		switch {
		case finalized(old, object) && !c.dryRun:
			object, err = a.removeObject(c.kind, old)
		case c.internal || c.sub != "" && c.sub != resize:
			err = put(c.kind, old, object, c.dryRun)()
		default:
			err = a.admitUse(c.kind, c.sub, object, old, put(c.kind, old, object, c.dryRun))
		}
		if !errors.Is(err, store.ErrChanged) {
			return object, err
		}
	}
	return nil, ctx.Err()
}

// put stores an object in place of old, unless it is a dry run.
func put(k *kind, old, object store.Object, dryRun bool) func() error {
	return func() error {
		switch {
		case !dryRun:
			return k.table.Put(old, object)
		case k.table.Get(store.KeyOf(object)) != old:
			return store.ErrChanged
		}
		return nil
	}
}

// finalized says that a change removes the last finalizer of an object that is being
// deleted.
func finalized(old, object store.Object) bool {
	grace := object.GetDeletionGracePeriodSeconds()
	return object.GetDeletionTimestamp() != nil && len(old.GetFinalizers()) > 0 && len(object.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// admitChange returns the object to be stored in place of old.
func (a *API) admitChange(ctx context.Context, c change, old, object store.Object) (store.Object, error) {
	if err := checkIdentity(c.kind, old, object); err != nil {
		return nil, err
	}
	keepMeta(old, object)
	if c.internal { // made of what is stored
		faults := validation.ValidateObjectMetaAccessorUpdate(object, old, utilvalidation.NewPath("metadata"))
		return object, refusal(c.kind, object.GetName(), faults)
	}
	strategy.SetDefaults(object)
	if len(old.GetManagedFields()) > 0 {
		if err := manageable(object); err != nil {
			return nil, err
		}
	}
	if c.manager != "" && !c.applied { // before admission: what it sets has no manager
		object = a.managers.Update(c.writer(), old, object)
	}
	switch c.sub {
	case "", "scale":
		if err := a.plugIn(c.kind, object, old); err != nil {
			return nil, err
		}
	case resize:
		if pod := object.(*v1.Pod); pod.DeletionTimestamp == nil {
			if err := strategy.SetLimits(a.limitRanges(pod.Namespace), pod); err != nil {
				return nil, err
			}
		}
	}
	return c.kind.strategy.Update(ctx, c.sub, object, old)
}

func (c change) writer() apply.Writer {
	return apply.Writer{Name: c.manager, Kind: c.kind.GroupVersionKind, Sub: c.sub, Reset: c.kind.strategy.Reset(c.sub)}
}

// manager is the name under which the client of a request manages fields.
func (r *request) manager() string {
	return cmp.Or(r.query.Get("fieldManager"), apply.ManagerOf(r.UserAgent()), "unknown")
}

func checkIdentity(k *kind, old, object store.Object) error {
	if uid := object.GetUID(); uid != "" && uid != old.GetUID() {
		return conflict(k.groupResource(), old, unlike("UID", uid, old.GetUID()))
	}
	v := object.GetResourceVersion()
	unconditional := v == "" || v == "0"
	if unconditional && !k.strategy.Unconditional() {
		of := schema.GroupKind{Group: k.Group, Kind: k.resource} // as kube-apiserver names it
		return apierrors.NewInvalid(of, old.GetName(), utilvalidation.ErrorList{utilvalidation.Invalid(utilvalidation.NewPath("metadata", "resourceVersion"), v, "must be specified for an update")})
	}
	if !unconditional && v != old.GetResourceVersion() {
		return conflict(k.groupResource(), old, "the object has been modified; please apply your changes to the latest version and try again")
	}
	return nil
}

// conflict is the error for a change of an outdated object.
func conflict(resource schema.GroupResource, o store.Object, why string) error {
	return apierrors.NewConflict(resource, o.GetName(), errors.New(why))
}

func unlike[T ~string](what string, expected, found T) string {
	return fmt.Sprintf("Precondition failed: %s in precondition: %v, %s in object meta: %v", what, expected, what, found)
}

// keepMeta keeps the fields that only the server writes.
func keepMeta(old, object store.Object) {
	object.SetUID(old.GetUID())
	object.SetResourceVersion(old.GetResourceVersion())
	object.SetCreationTimestamp(old.GetCreationTimestamp())
	object.SetGeneration(old.GetGeneration())
	object.SetDeletionTimestamp(old.GetDeletionTimestamp())
	object.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	object.SetSelfLink("")
}

func fieldOf(o runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName(name)
}

// change is that of the request's object, without next.
func (r *request) change() change {
	return change{kind: r.kind, key: r.key(), sub: r.sub, manager: r.manager(), dryRun: r.dryRun()}
}

func (r *request) put() (int, runtime.Object, error) {
	object, err := r.object()
	if err != nil {
		return 0, nil, err
	}
	c := r.change()
	c.next = replaceBy(object)
	code := http.StatusOK
	if r.kind.strategy.Upserts() {
		c.missing = func() (store.Object, error) {
			if uid := object.GetUID(); uid != "" {
				return nil, conflict(r.kind.groupResource(), object, unlike("UID", uid, ""))
			}
			code = http.StatusCreated
			version := object.GetResourceVersion()
			object.SetResourceVersion("")
			object.SetManagedFields(nil)
			created, err := r.api.create(r.context(), r.kind, object, r.dryRun())
			if err == nil && r.dryRun() {
				created.SetResourceVersion(version) // kube-apiserver leaves it where it stores nothing
			}
			return created, err
		}
	}
	result, err := r.api.update(r.context(), c)
	return code, result, err
}
