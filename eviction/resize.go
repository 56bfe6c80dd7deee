package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/podspec"
)

// ResizeAnnotation of a pod is "memory<=QUANTITY": the memory limits of its containers may be raised up to that.
const ResizeAnnotation = "evictd.io/resize"

// Resizes is when the memory limit of a container is raised that reaches it soon.
type Resizes struct {
	// Namespaces are those in which ResizeAnnotation counts, and in which the other pods have an event.
	Namespaces []string
	// Interval is the least time between two resizes of a container.
	Interval time.Duration
}

// resizeHold is how long a resize is shown once it has no cause any more.
const resizeHold = 5 * time.Second

// ParseResize reads a value of ResizeAnnotation: the highest limit, bytes; zero for "".
func ParseResize(text string) (bound int64, err error) {
	if text == "" {
		return 0, nil
	}
	quantity, is := strings.CutPrefix(text, "memory<=")
	q, err := podspec.ParseQuantity(quantity)
	if !is || err != nil || q.Sign() <= 0 {
		return 0, fmt.Errorf("annotation %s: %q: expected memory<= and a positive quantity, such as memory<=1Gi", ResizeAnnotation, text)
	}
	return q.Value(), nil
}

// resizable says why the memory limit of a container cannot be raised in place, or nothing. A pod of class
// Guaranteed has its requests raised, too.
func resizable(pod *v1.Pod, i int) string {
	c := podspec.ContainerAt(pod, i)
	sidecar := c != nil && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	switch {
	case podspec.IsMirror(pod) || podspec.IsStatic(pod):
		return "a static pod cannot be resized"
	case pod.DeletionTimestamp != nil:
		return "the pod is being deleted"
	case pod.Spec.Resources != nil:
		return "the pod has limits of its own"
	case c == nil || i < len(pod.Spec.InitContainers) && !sidecar:
		return "it is no container that can be resized"
	case slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
		return p.ResourceName == v1.ResourceMemory && p.RestartPolicy != v1.NotRequired
	}):
		return "a resize restarts it"
	}
	return resizing(pod, c)
}

// resizing says which resize of a container the kubelet has not applied, or nothing.
func resizing(pod *v1.Pod, c *v1.Container) string {
	if shown := podspec.ResizeCondition(&pod.Status); shown != nil {
		why := []string{"the kubelet has not completed a resize of the pod", shown.Reason, shown.Message}
		return strings.Join(slices.DeleteFunc(why, func(part string) bool { return part == "" }), ": ")
	}
	if applied, shown := podspec.AppliedMemoryLimit(&pod.Status, c.Name); shown && applied != c.Resources.Limits.Memory().Value() {
		return "the kubelet has not applied its limit of " + MemoryAvailable.Rounded(c.Resources.Limits.Memory().Value())
	}
	return ""
}

// Limit is the memory limit of a container, bytes; zero where there is none.
func (p *Pod) Limit(container string) int64 {
	for i := range p.Containers {
		if p.Containers[i].Name == container {
			return p.Containers[i].MemoryLimit
		}
	}
	return 0
}

// of says whether the limits of the pod's containers are looked at.
func (r *Resizes) of(p *Pod) bool { return slices.Contains(r.Namespaces, p.Namespace) }

// resizeCause is that a container uses up its limit within the lead of warnings.
func (st *State) resizeCause(cfg *Config, _ *Input, c *Candidate, container int, taken bool) (Cause, string) {
	if !cfg.Resizes.of(c.Pod) || c.Pod.Estimated || c.Pod.Containers[container].Ephemeral {
		return Cause{}, ""
	}
	return c.nearsLimit(container, cfg.Warnings.Lead, taken)
}

// resizeTo is the limit that a container is to have, half as much more and no more than the pod's bound; or zero,
// and why it keeps what it has. The node has to have room for all that the containers may grow by whose limits were
// raised within the interval, this one among them.
func (st *State) resizeTo(cfg *Config, in *Input, c *Candidate, container int, before []StepAction) (limit int64, because string) {
	spec := &c.Pod.Containers[container]
	limit = min(spec.MemoryLimit+spec.MemoryLimit/2, c.Pod.ResizeBound)
	switch {
	case c.Pod.ResizeBound == 0:
		return 0, "the pod has no annotation " + ResizeAnnotation
	case spec.NotResizable != "":
		return 0, spec.NotResizable
	case limit <= spec.MemoryLimit:
		return 0, fmt.Sprintf("the bound of its annotation is %s", MemoryAvailable.Rounded(c.Pod.ResizeBound))
	}
	r := raised{pod: c.Pod.UID, container: spec.Name, limit: limit}
	grows, requests := r.grows(in)
	for _, other := range st.raised(cfg, in, &r, before) {
		more, requested := other.grows(in)
		grows, requests = grows+more, requests+requested
	}
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		if t.Signal != MemoryAvailable && t.Signal != AllocatableMemoryAvailable {
			continue
		}
		o := &in.Signals[t.Signal]
		available, measured := o.Available.Get()
		required, known := t.Value.Of(*o)
		if measured && (!known || available-grows < required) || !measured && t.Signal == MemoryAvailable {
			return 0, fmt.Sprintf("the node has no %s above the %s threshold %s of %v", MemoryAvailable.Rounded(grows), t.Kind(), t.FormatValue(), t.Signal)
		}
	}
	if c.Pod.QOS != v1.PodQOSGuaranteed {
		return limit, ""
	}
	allocatable, known := in.Signals[AllocatableMemoryAvailable].Capacity.Get()
	for i := range in.Candidates {
		if p := in.Candidates[i].Pod; !p.Terminal {
			requests += p.MemoryRequest
		}
	}
	if !known || requests > allocatable {
		return 0, "the requests of all pods would exceed what is allocatable"
	}
	return limit, ""
}

// raised is a container whose limit is raised.
type raised struct {
	pod       types.UID
	container string
	limit     int64
}

// raised are the containers but r whose limits were raised within the interval, or are in this pass.
func (st *State) raised(cfg *Config, in *Input, r *raised, before []StepAction) (all []raised) {
	add := func(other raised) {
		same := func(known raised) bool { return known.pod == other.pod && known.container == other.container }
		if other.limit > 0 && !same(*r) && !slices.ContainsFunc(all, same) {
			all = append(all, other)
		}
	}
	for i := range before {
		if s := &before[i]; s.Step == Resize {
			add(raised{s.Pod.UID, s.Container, s.Bytes})
		}
	}
	for i := range st.Steps {
		if t := &st.Steps[i]; t.Step == Resize && in.Now.Sub(t.Last) < cfg.Resizes.Interval {
			add(raised{t.UID, t.Container, t.Bytes})
		}
	}
	return all
}

// grows is what the container may grow by under its limit, and what its pod is to request more than it does; nothing
// where it is no candidate any more.
func (r *raised) grows(in *Input) (memory, request int64) {
	at := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.Pod.UID == r.pod })
	if at < 0 || in.Candidates[at].Pod.Terminal {
		return 0, 0
	}
	c := &in.Candidates[at]
	if c.Pod.QOS == v1.PodQOSGuaranteed {
		request = max(0, r.limit-c.Pod.Limit(r.container))
	}
	if memory = r.limit; c.Usage != nil {
		memory = max(0, r.limit-c.ContainerMemory(r.container).Or(0))
	}
	return memory, request
}

func (st *State) resizeProspect(cfg *Config, in *Input, c *Candidate) (may bool, because string) {
	switch {
	case len(cfg.Resizes.Namespaces) == 0:
		return false, ""
	case !cfg.Resizes.of(c.Pod):
		return false, "resizes are not configured for its namespace"
	case c.Pod.ResizeBound == 0:
		return false, "the pod has no annotation " + ResizeAnnotation
	}
	return true, fmt.Sprintf("where a container of it reaches its limit within %v: up to %s", cfg.Warnings.Lead, MemoryAvailable.Rounded(c.Pod.ResizeBound))
}
