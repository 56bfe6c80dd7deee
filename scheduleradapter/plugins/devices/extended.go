package devices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Extended resources with a device class: a node without an allocatable amount
// provides them by devices. The scheduler makes one claim for those of a pod, the
// special claim. Until PreBind creates it, it has no name and no uid of the API
// server.

// maxMapped bounds the extended resources of a pod that have a device class.
const maxMapped = 32

// mappedResource is an extended resource of the pod with its class.
type mappedResource struct {
	name  nodetable.Symbol
	class string
}

// mapping names the request of the special claim that a container uses.
type mapping = v1.ContainerExtendedResourceRequest

// notCreated is the name of a special claim that is not created; no API object has
// such a name.
const notCreated = "<extended-resources>"

// generatedUID is the uid of a pod's special claim until it is created.
func generatedUID(pod types.UID) types.UID { return "extended-resources/" + pod }

// isExtended reports whether a device class may provide a resource.
func isExtended(name string) bool {
	return strings.HasPrefix(name, resourceapi.ResourceDeviceClassPrefix) ||
		strings.Contains(name, "/") && !strings.Contains(name, v1.ResourceDefaultNamespacePrefix) && !strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix)
}

// findResources lists the extended resources of the pod and makes the special claim
// if one of them has a class.
func (p *Plugin) findResources(pod *nodetable.Pod) framework.Status {
	if len(p.resources) == 0 {
		return framework.Status{}
	}
	for _, a := range pod.Requests.Extended {
		if a.Value == 0 || !isExtended(a.Name.Value()) {
			continue
		}
		if class := p.resources[a.Name]; class != nil {
			p.mapped = append(p.mapped, mappedResource{a.Name, class.Name})
		} else {
			p.unmapped = append(p.unmapped, a)
		}
	}
	switch {
	case len(p.mapped) > maxMapped:
		return unresolvable(fmt.Sprintf("the pod requests %d extended resources that have a device class, more than %d", len(p.mapped), maxMapped))
	case len(p.mapped) == 0:
	case p.generated[pod.UID] != nil:
		p.special, p.stale = p.generated[pod.UID].ResourceClaim, true
	default:
		p.special = newSpecial(pod.Object)
	}
	return framework.Status{}
}

func newSpecial(pod *v1.Pod) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: notCreated, UID: generatedUID(pod.UID), GenerateName: pod.Name + "-extended-resources-",
		Annotations:     map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}},
	}}
}

// filterResources rejects all nodes while the special claim of an earlier attempt
// exists, and nodes without an extended resource that has no class.
func (p *Plugin) filterResources(c *framework.Cycle) {
	if p.special == nil {
		return
	}
	if p.stale {
		c.RejectAll(c.Feasible, staleSpecial, true)
		return
	}
	for _, a := range p.unmapped {
		for row := range c.Feasible.All() {
			if _, has := c.Table.Node(row).Object.Status.Allocatable[v1.ResourceName(a.Name.Value())]; !has {
				c.Reject(row, lacksResource, true)
			}
		}
	}
}

// lacking is the set of mapped resources of which a node has no allocatable amount.
func (p *Plugin) lacking(table *nodetable.Table, row nodetable.Row) (set uint32) {
	for i, r := range p.mapped {
		if table.Extended(r.name).AllocatableOn(row) == 0 {
			set |= 1 << i
		}
	}
	return set
}

// requests are the device requests for a set of mapped resources, sorted by name,
// and which of them each container uses.
func (p *Plugin) requests(pod *v1.Pod, set uint32) (all []resourceapi.DeviceRequest, mappings []mapping) {
	for i, r := range p.mapped {
		if set&(1<<i) == 0 {
			continue
		}
		requests, uses := requestsFor(pod, r)
		all, mappings = append(all, requests...), append(mappings, uses...)
	}
	slices.SortFunc(all, func(a, b resourceapi.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return all, mappings
}

// requestsFor are the device requests for one resource. Containers that run until
// the pod ends have a request each. An init container that ends before uses the
// devices of those that start later, and one more request for what they lack: the
// largest that any init container lacks.
func requestsFor(pod *v1.Pod, r mappedResource) (requests []resourceapi.DeviceRequest, mappings []mapping) {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	ends := func(i int) bool {
		restart := containers[i].RestartPolicy
		return i < len(pod.Spec.InitContainers) && (restart == nil || *restart != v1.ContainerRestartPolicyAlways)
	}
	lasting := make([]*resourceapi.DeviceRequest, len(containers))
	for i := range containers {
		if n := wanted(&containers[i], r); n != 0 && !ends(i) {
			lasting[i] = newRequest(containers, i, r, n)
			mappings = append(mappings, useOf(&containers[i], r, lasting[i].Name))
		}
	}
	var further *resourceapi.DeviceRequest
	var early []mapping
	own := map[string]bool{} // requests of init containers
	for i := range pod.Spec.InitContainers {
		lacks := wanted(&containers[i], r)
		if lacks == 0 || !ends(i) {
			continue
		}
		for _, other := range lasting[i:] {
			if other != nil && lacks > 0 {
				lacks -= other.Exactly.Count
				early = append(early, useOf(&containers[i], r, other.Name))
			}
		}
		if lacks > 0 {
			request := newRequest(containers, i, r, lacks)
			own[request.Name] = true
			early = append(early, useOf(&containers[i], r, request.Name))
			if further == nil || further.Exactly.Count < lacks {
				further = request
			}
		}
	}
	for i, use := range early {
		if own[use.RequestName] {
			early[i] = mapping{ContainerName: use.ContainerName, ResourceName: use.ResourceName, RequestName: further.Name}
		}
	}
	for _, request := range append(lasting, further) {
		if request != nil {
			requests = append(requests, *request)
		}
	}
	return requests, append(mappings, early...)
}

// wanted is the amount of a resource that a container requests; 0 for a fraction.
func wanted(c *v1.Container, r mappedResource) int64 {
	quantity := c.Resources.Requests[v1.ResourceName(r.name.Value())]
	n, whole := quantity.AsInt64()
	if !whole {
		return 0
	}
	return n
}

func useOf(c *v1.Container, r mappedResource, request string) mapping {
	return mapping{ContainerName: c.Name, ResourceName: r.name.Value(), RequestName: request}
}

// newRequest names a request by the index of the container and the index of the
// resource among the sorted requests of the container.
func newRequest(containers []v1.Container, i int, r mappedResource, n int64) *resourceapi.DeviceRequest {
	at, _ := slices.BinarySearch(slices.Sorted(maps.Keys(containers[i].Resources.Requests)), v1.ResourceName(r.name.Value()))
	return &resourceapi.DeviceRequest{
		Name:    fmt.Sprintf("container-%d-request-%d", i, at),
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: r.class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: n},
	}
}
