package embeddedapi

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// column is a column of kubectl get. A wide one is for -o wide.
type column struct {
	name string
	wide bool
	cell func(store.Object) any
}

// col is a column of objects of Go type T.
func col[T any](name string, cell func(T) any) column {
	return column{name: name, cell: func(o store.Object) any { return cell(any(o).(T)) }}
}

func wide(c column) column {
	c.wide = true
	return c
}

var (
	nameColumn = column{name: "Name", cell: func(o store.Object) any { return o.GetName() }}
	ageColumn  = column{name: "Age", cell: func(o store.Object) any { return age(o.GetCreationTimestamp()) }}
)

func age(since metav1.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(since.Time))
}

// inTable is an object, or a list of them, as a table of the kind's columns.
func (r *request) inTable(object runtime.Object) runtime.Object {
	if _, isStatus := object.(*metav1.Status); isStatus || r.kind == nil {
		return object
	}
	columns := r.kind.columns
	if columns == nil {
		columns = []column{nameColumn, ageColumn}
	}
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}}
	for i, c := range columns {
		definition := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if i == 0 {
			definition.Format = "name"
		}
		if c.wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	if list, isList := object.(metav1.ListInterface); isList && meta.IsListType(object) {
		table.ListMeta = metav1.ListMeta{ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue(), RemainingItemCount: list.GetRemainingItemCount()}
		each := func(item runtime.Object) error {
			table.Rows = append(table.Rows, r.row(columns, item.(store.Object)))
			return nil
		}
		if err := meta.EachListItem(object, each); err != nil {
			r.api.log.Error("list not in a table", "error", err)
		}
		return table
	}
	one := object.(store.Object)
	table.ResourceVersion = one.GetResourceVersion()
	table.Rows = []metav1.TableRow{r.row(columns, one)}
	return table
}

func (r *request) row(columns []column, served store.Object) metav1.TableRow {
	var row metav1.TableRow
	stored := r.kind.received(served)
	for _, c := range columns {
		row.Cells = append(row.Cells, c.cell(stored))
	}
	switch r.query.Get("includeObject") {
	case string(metav1.IncludeNone):
	case string(metav1.IncludeObject):
		row.Object.Object = served
	default:
		row.Object.Object = &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: *fieldOf(served, "ObjectMeta").Addr().Interface().(*metav1.ObjectMeta).DeepCopy(),
		}
	}
	return row
}
