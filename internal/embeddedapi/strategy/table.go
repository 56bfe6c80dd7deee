package strategy

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
)

var printer = sync.OnceValue(func() *printers.HumanReadableGenerator {
	return printers.NewTableGenerator().With(printersinternal.AddHandlers)
})

// Table returns the columns and rows of kubectl get, a row for each object. The objects are of one kind and in their stored
// version; the rows hold them in the internal version. A kind that Kubernetes has no printer for has its name and its age.
func (s *Strategy) Table(ctx context.Context, resource schema.GroupResource, kind string, objects []runtime.Object) (*metav1.Table, error) {
	list, err := legacyscheme.Scheme.New(s.stored.WithKind(kind + "List"))
	if err != nil {
		return nil, err
	}
	if err := meta.SetList(list, objects); err != nil {
		return nil, err
	}
	printed, err := internal(list)
	if err != nil {
		return nil, err
	}
	table, err := printer().GenerateTable(printed, printers.GenerateOptions{Wide: true})
	if err != nil {
		return rest.NewDefaultTableConvertor(resource).ConvertToTable(ctx, printed, nil)
	}
	return table, nil
}
