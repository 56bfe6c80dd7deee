package nodestatus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Reserved is the part of the node's capacity that pods cannot use.
type Reserved struct {
	System, Kube v1.ResourceList
	// Hard is the amount of the hard eviction threshold of memory.available
	// under memory, and of nodefs.available under ephemeral-storage. It lowers
	// allocatable and not the limit of running pods.
	Hard v1.ResourceList
}

// Allocatable is the capacity minus all reservations, at least zero; memory also minus
// huge pages, which are counted separately (kubelet, Node Allocatable). The error names
// each resource with reservations above its capacity; the list is complete even then.
func (r Reserved) Allocatable(capacity v1.ResourceList) (v1.ResourceList, error) {
	allocatable := make(v1.ResourceList, len(capacity))
	for name, amount := range capacity {
		allocatable[name] = less(amount, r.System[name], r.Kube[name], r.Hard[name])
	}
	for name, amount := range capacity {
		if memory, ok := allocatable[v1.ResourceMemory]; ok && strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			allocatable[v1.ResourceMemory] = less(memory, amount)
		}
	}
	return allocatable, r.check(capacity)
}

// check reports reservations above capacity. A hard threshold of a resource
// whose capacity is not known reserves nothing.
func (r Reserved) check(capacity v1.ResourceList) error {
	sums := v1.ResourceList{}
	hard := maps.Clone(r.Hard)
	maps.DeleteFunc(hard, func(name v1.ResourceName, _ resource.Quantity) bool {
		_, known := capacity[name]
		return !known
	})
	for _, list := range []v1.ResourceList{r.System, r.Kube, hard} {
		for name, amount := range list {
			sum := sums[name]
			sum.Add(amount)
			sums[name] = sum
		}
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		sum, has := sums[name], capacity[name]
		if sum.Cmp(has) > 0 {
			faults = append(faults, fmt.Errorf("%s: %s reserved of a capacity of %s", name, &sum, &has))
		}
	}
	return errors.Join(faults...)
}

// PodsLimit is the limit of the cgroup of all pods: the capacity minus both
// reservations, at least zero. It is not known where the capacity is not.
func (r Reserved) PodsLimit(capacity v1.ResourceList, name v1.ResourceName) (limit resource.Quantity, known bool) {
	amount, known := capacity[name]
	return less(amount, r.System[name], r.Kube[name]), known
}

// less subtracts from amount, down to zero.
func less(amount resource.Quantity, parts ...resource.Quantity) resource.Quantity {
	rest := amount.DeepCopy()
	for _, part := range parts {
		rest.Sub(part)
	}
	if rest.Sign() < 0 {
		return *resource.NewQuantity(0, amount.Format)
	}
	return rest
}
