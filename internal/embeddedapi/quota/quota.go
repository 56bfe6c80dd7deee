// Package quota computes what objects use of ResourceQuotas, and refuses what these do not allow, by the evaluators of
// Kubernetes and kube-apiserver's admission plugin ResourceQuota. It stores nothing.
package quota

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
)

// List returns the objects of a resource in a namespace.
type List func(resource schema.GroupResource, namespace string) []runtime.Object

// Evaluators compute what objects use. Any number of goroutines may use them.
type Evaluators struct{ registry quota.Registry }

// New returns the evaluators of resources. A resource that Kubernetes has no evaluator for is counted by its objects.
func New(resources []schema.GroupResource, list List) (*Evaluators, error) {
	find := func(resource schema.GroupVersionResource) (cache.GenericLister, error) {
		return lister{resource: resource.GroupResource(), list: list}, nil
	}
	// The evaluator of ResourceClaims follows pods and classes through informers.
	evaluators, err := core.NewEvaluators(find, nil, func(resource schema.GroupVersionResource) bool { return resource.Resource != "resourceclaims" })
	if err != nil {
		return nil, err
	}
	known := generic.NewRegistry(evaluators)
	for _, resource := range resources {
		if known.Get(resource) == nil {
			known.Add(generic.NewObjectCountEvaluator(resource, generic.ListResourceUsingListerFunc(find, resource.WithVersion("")), ""))
		}
	}
	return &Evaluators{known}, nil
}

// Used returns what the objects of a quota's namespace use of it.
func (e *Evaluators) Used(q *v1.ResourceQuota) (v1.ResourceList, error) {
	return quota.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, e.registry, q.Spec.ScopeSelector)
}

// Check returns the error for a write that one of the quotas of its namespace does not allow.
func (e *Evaluators) Check(quotas []*v1.ResourceQuota, write admission.Attributes) error {
	evaluator := e.registry.Get(write.GetResource().GroupResource())
	if evaluator == nil || !evaluator.Handles(write) {
		return nil
	}
	var present []v1.ResourceQuota
	for _, q := range quotas {
		used, err := e.Used(q)
		if err != nil {
			return err
		}
		counted := *q.DeepCopy()
		counted.Status = v1.ResourceQuotaStatus{Hard: counted.Spec.Hard, Used: used}
		present = append(present, counted)
	}
	_, err := resourcequota.CheckRequest(present, write, evaluator, nil)
	return err
}

// lister lists the objects of a resource.
type lister struct {
	resource  schema.GroupResource
	namespace string
	list      List
}

func (l lister) List(labels.Selector) ([]runtime.Object, error) {
	return l.list(l.resource, l.namespace), nil
}

func (l lister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	l.namespace = namespace
	return l
}

func (l lister) Get(string) (runtime.Object, error) {
	return nil, errors.New("quotas read lists only")
}
