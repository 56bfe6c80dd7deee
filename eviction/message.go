package eviction

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/stats"
)

// ReasonEvicted is the reason in a victim's status and event, and
// ReasonTerminationByKubelet that of its DisruptionTarget condition.
const (
	ReasonEvicted              = "Evicted"
	ReasonTerminationByKubelet = "TerminationByKubelet"
)

// Annotations of a victim's event.
const (
	offendingContainers      = "offending_containers"
	offendingContainersUsage = "offending_containers_usage"
	offendingPod             = "offending_pod"
	offendingPodUsage        = "offending_pod_usage"
	starvedResource          = "starved_resource"
)

// The sentences end in a space each: the kubelet's messages do. podspec has those that begin a message.
const (
	thresholdMetMessage = "Threshold quantity: %v, available: %v. "
	podMessage          = "Pod %s was using %s, request is %s, has larger consumption of %v. "
	stallMessage        = "Its tasks waited for memory in %s of the time, threshold %s. "
	podStallMessage     = "Pod %s was reading back %s of memory a second, and using %s, request is %s. "
	estimatedMessage    = "Its class and requests are estimated from the container runtime, as no source of pods has the pod. "
	podSwapMessage      = "Pod %s was using %s of memory and %s of swap, request is %s. "
	containerMessage    = "Container %s was using %s, request is %s, has larger consumption of %v. "
)

// NodeLowMessage is the begin of the message of a victim of node pressure.
func NodeLowMessage(s Signal) string { return fmt.Sprintf(podspec.NodeLowMessage, s.Resource()) }

// message writes the message and the event's annotations of a victim of node
// pressure. Without statistics there are no annotations.
func message(c Candidate, met Met) (string, map[string]string) {
	starved := met.Signal.Resource()
	var b strings.Builder
	b.WriteString(NodeLowMessage(met.Signal))
	if required, available := met.Signal.Quantity(met.Required), met.Signal.Quantity(met.Available); met.Signal == MemoryStall {
		fmt.Fprintf(&b, stallMessage, available, required)
	} else {
		fmt.Fprintf(&b, thresholdMetMessage, required, available)
	}
	annotations := map[string]string{}
	if c.Usage == nil {
		return b.String(), annotations
	}
	if met.Signal == MemoryStall {
		usage := bytes(c.Usage.Memory.Or(0))
		fmt.Fprintf(&b, podStallMessage, c.Pod.Name, bytes(c.ReadBack), usage, bytes(c.Pod.MemoryRequest))
		annotations[offendingPod], annotations[offendingPodUsage] = c.Pod.Name, usage.String()
	} else if met.Signal == SwapAvailable {
		if usage := c.usage(met.Signal, SharedFs); c.Usage.Swap.IsKnown() && usage > c.Pod.MemoryRequest {
			fmt.Fprintf(&b, podSwapMessage, c.Pod.Name, bytes(c.Usage.Memory.Or(0)), bytes(c.Usage.Swap.Or(0)), bytes(c.Pod.MemoryRequest))
			annotations[offendingPod], annotations[offendingPodUsage] = c.Pod.Name, bytes(usage).String()
		}
	} else if request := c.Pod.PodLevelMemoryRequest; request != nil && starved == v1.ResourceMemory && c.Usage.Memory.IsKnown() {
		usage := bytes(c.Usage.Memory.Or(0))
		fmt.Fprintf(&b, podMessage, c.Pod.Name, usage, written(*request), starved)
		annotations[offendingPod] = c.Pod.Name
		annotations[offendingPodUsage] = usage.String()
	}
	var names, usages []string
	for i := range min(len(c.Usage.Containers), len(c.Pod.Containers)) {
		container := &c.Pod.Containers[i]
		used, request := containerUse(&c.Usage.Containers[i], container, starved)
		usage, known := used.Get()
		if !known || container.Ephemeral || bytes(usage).Cmp(request) <= 0 {
			continue
		}
		fmt.Fprintf(&b, containerMessage, container.Name, bytes(usage), written(request), starved)
		names = append(names, container.Name)
		usages = append(usages, bytes(usage).String())
	}
	if c.Pod.Estimated {
		b.WriteString(estimatedMessage)
	}
	annotations[offendingContainers] = strings.Join(names, ",")
	annotations[offendingContainersUsage] = strings.Join(usages, ",")
	annotations[starvedResource] = string(starved)
	return b.String(), annotations
}

// containerUse is what a container used of the starved resource, unknown for
// inodes and pids and where a part was not measured, beside its request.
func containerUse(used *stats.Container, c *Container, starved v1.ResourceName) (stats.Amount, resource.Quantity) {
	switch starved {
	case v1.ResourceMemory:
		return used.Memory, c.MemoryRequest
	case v1.ResourceEphemeralStorage:
		return used.Rootfs.Plus(used.Logs), c.StorageRequest
	}
	return stats.Amount{}, resource.Quantity{}
}

func bytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// written takes a copy because String keeps what it wrote in the quantity.
func written(q resource.Quantity) string { return q.String() }

// Explain writes the texts of the evictions, which Decide leaves out: they are not
// needed before the kill. It reads the usage of the candidates as it is now.
func (d *Decision) Explain() {
	for i := range d.Evictions {
		d.Evictions[i].explain()
	}
	for i := range d.Restarts {
		d.Restarts[i].explain()
	}
}

func (e *Eviction) explain() {
	if e.victim == nil { // of a limit of its own: Decide has written it
		return
	}
	e.Message, e.Annotations = message(e.victim.Candidate, e.met)
	because := "no other pod is eligible"
	if e.next != nil {
		because = e.victim.Before(e.next)
	}
	if r := &e.restarted; r.UID != "" {
		restarted := fmt.Sprintf("its container %s %s %v before", r.Container, either(r.Failed, "could not be restarted", "was restarted"), e.ago.Round(time.Millisecond))
		if because += "; " + restarted; e.afterRestart {
			because = restarted + ", which was not enough, and no pod uses more than it requested"
		}
	}
	e.Because = because + e.unreclaimed
}

// Held is what a victim of a disk holds there, which is freed after its end; empty for the
// others, and where it is not known.
func (e *Eviction) Held() string {
	frees, known := e.Frees().Get()
	if !known || e.Signal.Condition() != DiskPressure {
		return ""
	}
	return e.Signal.Quantity(frees)
}
