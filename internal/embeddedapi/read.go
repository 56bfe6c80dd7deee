package embeddedapi

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

func (r *request) get() (int, runtime.Object, error) {
	object := r.kind.table.Get(r.key())
	if object == nil {
		return 0, nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	if r.query.Get("watch") == "true" || r.query.Get("watch") == "1" {
		return 0, nil, r.watch()
	}
	return http.StatusOK, object, nil
}

// list answers with all objects, or a page of them.
func (r *request) list() (int, runtime.Object, error) {
	if r.query.Get("watch") == "true" || r.query.Get("watch") == "1" {
		return 0, nil, r.watch()
	}
	filter, err := newFilter(r, r.query)
	if err != nil {
		return 0, nil, err
	}
	objects, about, err := r.page(filter)
	if err != nil {
		return 0, nil, err
	}
	items := make([]runtime.Object, 0, len(objects))
	for _, o := range objects {
		items = append(items, r.kind.served(o))
	}
	list, err := r.api.listOf(r.kind, items, about)
	return http.StatusOK, list, err
}

// matching fills in the objects that the filter matches, in order, and their revision.
func (r *request) matching(filter *filter, in *snapshot) error {
	asked, err := r.revision()
	if err != nil {
		return err
	}
	objects, revision := r.kind.table.List(r.namespace)
	if r.query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) && asked != revision {
		return apierrors.NewResourceExpired(fmt.Sprintf("the resource version %d is no longer there", asked))
	}
	for _, o := range objects {
		if filter.matches(o) {
			in.objects = append(in.objects, o)
		}
		in.last = store.KeyOf(o)
	}
	in.revision = revision
	return nil
}

func (a *API) listOf(k *kind, items []runtime.Object, about metav1.ListMeta) (runtime.Object, error) {
	gvk := k.GroupVersion().WithKind(k.Kind + "List")
	list, err := a.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	listed := list.(metav1.ListInterface)
	listed.SetResourceVersion(about.ResourceVersion)
	listed.SetContinue(about.Continue)
	listed.SetRemainingItemCount(about.RemainingItemCount)
	return list, nil
}

// revision is the resource version of a request, 0 without one. A future one was issued
// by another store.
func (r *request) revision() (uint64, error) {
	text := r.query.Get("resourceVersion")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: resourceVersion: expected a number", text))
	}
	current := r.api.store.Revision()
	if n <= current {
		return n, nil
	}
	tooLarge := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", n, current), 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return 0, tooLarge
}
