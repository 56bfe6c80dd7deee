package embeddedapi

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// inTable is an object, or a list of them, as the table of kubectl get.
func (r *request) inTable(object runtime.Object) (runtime.Object, error) {
	if _, isStatus := object.(*metav1.Status); isStatus || r.kind == nil {
		return object, nil
	}
	var about metav1.ListMeta
	served := []runtime.Object{object}
	if list, isList := object.(metav1.ListInterface); isList && meta.IsListType(object) {
		about = metav1.ListMeta{ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue(), RemainingItemCount: list.GetRemainingItemCount()}
		var err error
		if served, err = meta.ExtractList(object); err != nil {
			return nil, err
		}
	} else {
		about.ResourceVersion = object.(store.Object).GetResourceVersion()
	}
	stored := make([]runtime.Object, len(served))
	for i, o := range served {
		stored[i] = r.kind.received(o.(store.Object))
	}
	table, err := r.kind.strategy.Table(r.Context(), r.kind.groupResource(), r.kind.Kind, stored)
	if err != nil {
		return nil, err
	}
	table.TypeMeta, table.ListMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}, about
	for i := range table.Rows {
		table.Rows[i].Object.Object = r.included(served[i].(store.Object))
	}
	return table, nil
}

// included is what a row of a table has of its object.
func (r *request) included(o store.Object) runtime.Object {
	switch r.query.Get("includeObject") {
	case string(metav1.IncludeNone):
		return nil
	case string(metav1.IncludeObject):
		return o
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: *fieldOf(o, "ObjectMeta").Addr().Interface().(*metav1.ObjectMeta).DeepCopy(),
	}
}
