package nodetable

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/evictd/evictd/internal/podspec"
)

// Default requests of containers for scores: 100 millicores and 200 MiB. Source:
// kube-scheduler's GetNonzeroRequests.
const (
	DefaultMilliCPU = 100
	DefaultMemory   = 200 << 20
)

// Amount of a resource other than cpu, memory, ephemeral-storage and pods.
type Amount struct {
	Name  Symbol
	Value int64
}

// Requests of a pod with its overhead: cpu in millicores, memory and ephemeral
// storage in bytes.
type Requests struct {
	CPU, Memory, Ephemeral int64
	// NonZeroCPU and NonZeroMemory use the defaults for containers without requests.
	NonZeroCPU, NonZeroMemory int64
	// Extended resources of an amount above 0, sorted by name, at most MaxExtended.
	Extended []Amount
	// Containers are the requests without those of the pod level, by which
	// NodeResourcesFit scores; nil: the pod level has none.
	Containers *Requests
	// Shape is equal for equal requests.
	Shape Shape

	beyond int // extended resources beyond MaxExtended
}

// Shape is Requests as a comparable value.
type Shape struct {
	cpu, memory, ephemeral, nonZeroCPU, nonZeroMemory int64
	extended, containers                              Symbol
}

// Hash adds the shape to a hash.
func (s Shape) Hash(h Hash) Hash {
	return h.Numbers(s.cpu, s.memory, s.ephemeral, s.nonZeroCPU, s.nonZeroMemory).Symbols(s.extended, s.containers)
}

// NewRequests sums up a pod: containers, sidecars, init containers, pod-level
// requests, overhead, and resources allocated by an in-place resize of containers or
// of the pod.
func NewRequests(pod *v1.Pod) Requests {
	status := &pod.Status
	r := newRequests(pod, podresource.PodResourcesOptions{
		UseStatusResources: len(status.ContainerStatuses)+len(status.InitContainerStatuses) > 0 || status.Resources != nil || status.AllocatedResources != nil,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	if podresource.IsPodLevelRequestsSet(pod) {
		c := newRequests(pod, podresource.PodResourcesOptions{SkipPodLevelResources: true})
		r.Containers, r.Shape.containers = &c, Intern(fmt.Sprint(c.CPU, c.Memory, c.Ephemeral, c.NonZeroCPU, c.NonZeroMemory, extendedKey(c.Extended)))
	}
	return r
}

func newRequests(pod *v1.Pod, options podresource.PodResourcesOptions) Requests {
	total := podresource.PodRequests(pod, options)
	options.NonMissingContainerRequests = v1.ResourceList{}
	wholePod := !options.SkipPodLevelResources && podresource.IsPodLevelRequestsSet(pod)
	for name, value := range map[v1.ResourceName]*resource.Quantity{
		v1.ResourceCPU:    resource.NewMilliQuantity(DefaultMilliCPU, resource.DecimalSI),
		v1.ResourceMemory: resource.NewQuantity(DefaultMemory, resource.BinarySI),
	} {
		if _, set := total[name]; !set || !wholePod {
			options.NonMissingContainerRequests[name] = *value
		}
	}
	nonZero := podresource.PodRequests(pod, options)
	r := Requests{
		CPU: amount(total.Cpu(), resource.Milli), Memory: amount(total.Memory(), 0), Ephemeral: amount(total.StorageEphemeral(), 0),
		NonZeroCPU: amount(nonZero.Cpu(), resource.Milli), NonZeroMemory: amount(nonZero.Memory(), 0),
		Extended: extended(total, amount),
	}
	if r.beyond = len(r.Extended) - MaxExtended; r.beyond > 0 {
		r.Extended = r.Extended[:MaxExtended]
	}
	r.Shape = Shape{r.CPU, r.Memory, r.Ephemeral, r.NonZeroCPU, r.NonZeroMemory, Intern(extendedKey(r.Extended)), Symbol{}}
	return r
}

// amount is a quantity of at most MaxAmount.
func amount(q *resource.Quantity, scale resource.Scale) int64 {
	return min(podspec.Amount(*q, scale), MaxAmount)
}

// extended are the amounts above 0 of extended resources, huge pages and attachable
// volumes.
func extended(list v1.ResourceList, amount func(*resource.Quantity, resource.Scale) int64) []Amount {
	var amounts []Amount
	for name, quantity := range list {
		if counted(string(name)) && !quantity.IsZero() {
			amounts = append(amounts, Amount{Intern(string(name)), amount(&quantity, 0)})
		}
	}
	slices.SortFunc(amounts, func(a, b Amount) int { return strings.Compare(a.Name.Value(), b.Name.Value()) })
	return amounts
}

func counted(name string) bool {
	return strings.Contains(name, "/") && !strings.HasPrefix(name, "requests.") ||
		strings.HasPrefix(name, v1.ResourceHugePagesPrefix) || strings.HasPrefix(name, v1.ResourceAttachableVolumesPrefix)
}

func extendedKey(amounts []Amount) string {
	var b strings.Builder
	for _, a := range amounts {
		fmt.Fprintf(&b, "%s=%d;", a.Name.Value(), a.Value)
	}
	return b.String()
}

// Against reports whether r has less of a resource than o, and more of a resource.
func (r *Requests) Against(o *Requests) (less, more bool) {
	if r.Shape == o.Shape {
		return false, false
	}
	note := func(mine, others int64) { less, more = less || mine < others, more || mine > others }
	note(r.CPU, o.CPU)
	note(r.Memory, o.Memory)
	note(r.Ephemeral, o.Ephemeral)
	for _, a := range r.Extended {
		note(a.Value, valueOf(o.Extended, a.Name))
	}
	for _, a := range o.Extended {
		note(valueOf(r.Extended, a.Name), a.Value)
	}
	return less, more
}

func valueOf(amounts []Amount, name Symbol) int64 {
	if i := slices.IndexFunc(amounts, func(a Amount) bool { return a.Name == name }); i >= 0 {
		return amounts[i].Value
	}
	return 0
}
