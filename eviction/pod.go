package eviction

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/evictd/evictd/internal/podspec"
)

// Protection says why a pod is never evicted. The empty one protects nothing.
type Protection string

// The protections.
const (
	StaticPod        Protection = "static pod"
	MirrorPod        Protection = "mirror pod"
	CriticalPriority Protection = "system-critical priority"
	// OmittedGroup protects a cgroup outside of the pods.
	OmittedGroup Protection = "ManagedOOMPreference=omit"
)

// PreferenceAnnotation of a pod is first or last: see Preference.
const PreferenceAnnotation = "evictd.io/eviction"

// Preference is the place that a pod asks for among those that exceed their requests alike and
// have its priority. It counts in the namespaces of the configuration.
type Preference int8

// The preferences, in the order of eviction.
const (
	EvictFirst Preference = iota - 1
	NoPreference
	EvictLast
)

func (p Preference) String() string { return [...]string{"first", "", "last"}[p+1] }

// ParsePreference reads a value of PreferenceAnnotation.
func ParsePreference(text string) (Preference, error) {
	for _, p := range []Preference{EvictFirst, EvictLast} {
		if p.String() == text {
			return p, nil
		}
	}
	return NoPreference, fmt.Errorf("annotation %s: %q: expected first or last", PreferenceAnnotation, text)
}

// Pod is what eviction needs to know of a pod, digested once when the pod
// appears and never changed after. Bytes, unless said otherwise.
type Pod struct {
	UID             types.UID
	Owner           types.UID // of the controlling owner, else the pod's own
	Namespace, Name string
	Generation      int64
	Priority        int32
	QOS             v1.PodQOSClass
	Preference      Preference
	Protection      Protection
	// ToleratesMemoryPressure: the pod tolerates the taint of that condition.
	ToleratesMemoryPressure bool
	// Notify says how the pod is warned. It counts in the namespaces of the configuration.
	Notify Notify
	// ResizeBound is the highest memory limit that the pod asks for, bytes; zero where it asks for no resize. It counts
	// in the namespaces of the configuration.
	ResizeBound int64
	// Estimated says that class and requests were inferred from the container runtime,
	// which is the only source of the pod.
	Estimated bool
	// Outside says that it is no pod but a cgroup outside of the pods, whose path is Name. It may be evicted where
	// memory is short and the pods are not the cause.
	Outside bool
	// Terminal pods have ended by themselves (Succeeded, Failed).
	Terminal bool
	// TerminationGracePeriod in seconds; nil where the pod does not say.
	TerminationGracePeriod *int64

	// MemoryRequest and StorageRequest are what the pod asked for: its own
	// pod-level request where it has any pod-level resources, which cannot be ephemeral storage;
	// else the larger of its init and its other containers. With overhead where it is not zero.
	MemoryRequest, StorageRequest int64
	// PodLevelMemoryRequest is the request the pod as a whole states, nil
	// where it states none.
	PodLevelMemoryRequest *resource.Quantity
	// StorageLimit bounds the pod's ephemeral storage, nil without a limit.
	StorageLimit *resource.Quantity
	Containers   []Container // in manifest order, init containers first, ephemeral ones last
	Volumes      []Volume    // in manifest order
}

// Container is what eviction needs to know of a container.
type Container struct {
	Name string
	// StorageLimit is zero where there is none, and for init containers that
	// do not restart, whose limits are not enforced.
	MemoryRequest, StorageRequest, StorageLimit resource.Quantity
	// MemoryLimit that the kubelet has applied, bytes; zero where there is none.
	MemoryLimit int64
	// Restart is NotRestarted, too, where the end of the container does not free its memory.
	Restart RestartRule
	// NotResizable is why the memory limit cannot be raised in place; empty where it can.
	NotResizable string
	// Ephemeral containers cannot request anything; messages never name them.
	Ephemeral bool
}

// Volume is what eviction needs to know of a volume.
type Volume struct {
	Name string
	// Local volumes count in the disk ranking: hostPath, gitRepo, configMap
	// and emptyDir of the default medium.
	Local bool
	// Ephemeral volumes count as the pod's ephemeral storage: configMap, gitRepo and
	// emptyDir of the default medium.
	Ephemeral bool
	// SizeLimit of an emptyDir of any medium, nil without a positive one.
	SizeLimit *resource.Quantity
}

// String is namespace/name.
func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// HasStorageLimits says whether any local-storage limit can apply to the pod.
func (p *Pod) HasStorageLimits() bool {
	if p.StorageLimit != nil {
		return true
	}
	for i := range p.Volumes {
		if p.Volumes[i].SizeLimit != nil {
			return true
		}
	}
	for i := range p.Containers {
		if !p.Containers[i].StorageLimit.IsZero() {
			return true
		}
	}
	return false
}

// Digest reads a pod manifest, with the requests that an API server would have
// defaulted. The uid and the namespace are taken as given.
func Digest(pod *v1.Pod) *Pod {
	pod = podspec.WithDefaultRequests(pod)
	p := &Pod{
		UID:                    pod.UID,
		Owner:                  pod.UID,
		Namespace:              pod.Namespace,
		Name:                   pod.Name,
		Generation:             pod.Generation,
		QOS:                    podspec.QOSClass(pod),
		Terminal:               pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed,
		TerminationGracePeriod: pod.Spec.TerminationGracePeriodSeconds,
		MemoryRequest:          requestWithOverhead(pod, v1.ResourceMemory),
		StorageRequest:         requestWithOverhead(pod, v1.ResourceEphemeralStorage),
		Protection:             protection(pod),

		ToleratesMemoryPressure: podspec.ToleratesMemoryPressure(pod),
		Outside:                 podspec.IsCgroup(pod),
	}
	for i := range pod.OwnerReferences {
		if owner := &pod.OwnerReferences[i]; owner.Controller != nil && *owner.Controller {
			p.Owner = owner.UID
		}
	}
	p.Preference, _ = ParsePreference(pod.Annotations[PreferenceAnnotation])
	if p.Outside && pod.Annotations[podspec.OOMPreference] == podspec.OOMAvoid {
		p.Preference = EvictLast
	}
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	if pod.Spec.Resources != nil {
		if q, ok := pod.Spec.Resources.Requests[v1.ResourceMemory]; ok {
			p.PodLevelMemoryRequest = &q
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	if q, ok := limits[v1.ResourceEphemeralStorage]; ok {
		p.StorageLimit = &q
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		p.Containers = append(p.Containers, digestContainer(c, sidecar))
	}
	for i := range pod.Spec.Containers {
		p.Containers = append(p.Containers, digestContainer(&pod.Spec.Containers[i], true))
	}
	for i := range pod.Spec.EphemeralContainers {
		p.Containers = append(p.Containers, Container{Name: pod.Spec.EphemeralContainers[i].Name, Ephemeral: true})
	}
	var names []string
	for i := range p.Containers {
		names = append(names, p.Containers[i].Name)
	}
	p.Notify, _ = ParseNotify(pod.Annotations, names)
	p.restartRules(pod)
	p.ResizeBound, _ = ParseResize(pod.Annotations[ResizeAnnotation])
	for i := range p.Containers {
		c := &p.Containers[i]
		c.NotResizable = resizable(pod, i)
		if applied, shown := podspec.AppliedMemoryLimit(&pod.Status, c.Name); shown {
			c.MemoryLimit = applied
		}
	}
	for i := range pod.Spec.Volumes {
		p.Volumes = append(p.Volumes, digestVolume(&pod.Spec.Volumes[i]))
	}
	return p
}

func protection(pod *v1.Pod) Protection {
	switch {
	case podspec.IsCgroup(pod) && pod.Annotations[podspec.OOMPreference] == podspec.OOMOmit:
		return OmittedGroup
	case podspec.IsMirror(pod):
		return MirrorPod
	case podspec.IsStatic(pod):
		return StaticPod
	case podspec.HasCriticalPriority(pod):
		return CriticalPriority
	}
	return ""
}

// requestWithOverhead is the pod's effective request, to which the overhead is
// added only where there is a request at all.
func requestWithOverhead(pod *v1.Pod, name v1.ResourceName) int64 {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		ExcludeOverhead: true, SkipContainerLevelResources: resourcehelper.IsPodLevelResourcesSet(pod),
	})
	request := requests[name]
	if !request.IsZero() {
		request.Add(pod.Spec.Overhead[name])
	}
	return podspec.Amount(request, 0)
}

func digestContainer(c *v1.Container, limited bool) Container {
	d := Container{
		Name:           c.Name,
		MemoryRequest:  c.Resources.Requests[v1.ResourceMemory],
		StorageRequest: c.Resources.Requests[v1.ResourceEphemeralStorage],
		MemoryLimit:    c.Resources.Limits.Memory().Value(),
	}
	if limited {
		d.StorageLimit = c.Resources.Limits[v1.ResourceEphemeralStorage]
	}
	return d
}

func digestVolume(v *v1.Volume) Volume {
	onDisk := v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
	d := Volume{Name: v.Name, Ephemeral: onDisk || v.GitRepo != nil || v.ConfigMap != nil}
	d.Local = d.Ephemeral || v.HostPath != nil
	if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
		d.SizeLimit = e.SizeLimit
	}
	return d
}
