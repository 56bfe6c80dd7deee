package nodetable

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
)

// Pod is the immutable digest of a pod.
type Pod struct {
	*PodTemplate
	*podLabels
	// Object is used for messages, volumes and out-of-tree plugins. For a digest of
	// Templates it is that of another pod, without names, labels, times, conditions and
	// mounts: see WithObject.
	Object *v1.Pod
	Name   string
	UID    types.UID
	// Node is spec.nodeName; zero: none.
	Node Symbol
	// Created is the creation time, Started is status.startTime; zero: unknown.
	Created, Started time.Time
	// Terminating: the pod has a deletionTimestamp.
	Terminating bool
	generation  int64
}

// Bounds of a pod. Each extended resource, each spread constraint and each inter-pod
// term may take memory in proportion to the number of nodes.
const (
	MaxExtended = 64
	MaxSpread   = 32
	MaxTerms    = 128 // of all four lists
)

// WeightedNodes is a preferred node affinity term.
type WeightedNodes struct {
	Weight int64
	Nodes  *NodeSelector
}

// Port is a host port. The IP 0.0.0.0 is all addresses.
type Port struct {
	IP       Symbol
	Protocol v1.Protocol
	Number   int32
}

// NewPod digests a pod. A term that does not parse matches nothing. Any goroutine may
// call it.
func NewPod(pod *v1.Pod) *Pod {
	labels := newPodLabels(pod)
	return newPod(pod, newPodTemplate(pod, labels.Labels), labels)
}

func newPod(pod *v1.Pod, template *PodTemplate, labels *podLabels) *Pod {
	p := &Pod{
		PodTemplate: template, podLabels: labels, Object: pod, Name: pod.Name, UID: pod.UID,
		Created: pod.CreationTimestamp.Time, Terminating: pod.DeletionTimestamp != nil, generation: pod.Generation,
	}
	if pod.Spec.NodeName != "" {
		p.Node = Intern(pod.Spec.NodeName)
	}
	if pod.Status.StartTime != nil {
		p.Started = pod.Status.StartTime.Time
	}
	return p
}

func newPodTemplate(pod *v1.Pod, labels Labels) *PodTemplate {
	p := &PodTemplate{
		Namespace: Intern(pod.Namespace), Priority: scheduling.PodPriority(pod), Requests: NewRequests(pod),
		Tolerations: NewTolerations(pod.Spec.Tolerations), Ports: ports(pod), Images: images(pod),
	}
	p.digestVolumes(pod)
	p.digestNodes(pod)
	p.digestSpread(pod, labels)
	p.digestAffinity(pod)
	p.bound("extended resources", MaxExtended+p.Requests.beyond, MaxExtended)
	p.bound("topology spread constraints", len(pod.Spec.TopologySpreadConstraints), MaxSpread)
	p.bound("inter-pod affinity terms", termCount(pod.Spec.Affinity), MaxTerms)
	p.unknown(&pod.Spec)
	return p
}

func (p *PodTemplate) bound(what string, n, most int) {
	if n > most {
		p.refuse(fmt.Sprintf("pod has %d %s, evictd-scheduler accepts %d", n, what, most))
	}
}

// LabelSet is equal for pods of a namespace with equal labels.
func (p *Pod) LabelSet() Symbol { return p.labelSet }

// String is namespace/name.
func (p *Pod) String() string { return p.Namespace.Value() + "/" + p.Name }

func (p *PodTemplate) digestNodes(pod *v1.Pod) {
	var required *v1.NodeSelector
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		p.PreferredNodes = NewWeightedNodes(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	p.Nodes = NewNodeSelector(pod.Spec.NodeSelector, required)
}

// NewWeightedNodes compiles preferred node affinity terms, without those of weight
// 0.
func NewWeightedNodes(terms []v1.PreferredSchedulingTerm) (compiled []WeightedNodes) {
	for i := range terms {
		if terms[i].Weight != 0 {
			compiled = append(compiled, WeightedNodes{int64(terms[i].Weight), NewNodeSelectorTerm(&terms[i].Preference)})
		}
	}
	return compiled
}

// ports are those of containers and sidecars.
func ports(pod *v1.Pod) []Port {
	var all []Port
	add := func(c *v1.Container) {
		for _, port := range c.Ports {
			if port.HostPort <= 0 {
				continue
			}
			p := Port{Intern(port.HostIP), port.Protocol, port.HostPort}
			if port.HostIP == "" {
				p.IP = Intern(everyIP)
			}
			if p.Protocol == "" {
				p.Protocol = v1.ProtocolTCP
			}
			all = append(all, p)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return all
}

const everyIP = "0.0.0.0"

// images are those of containers, init containers and image volumes.
func images(pod *v1.Pod) []Symbol {
	var all []Symbol
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			all = append(all, Intern(tagged(containers[i].Image)))
		}
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			all = append(all, Intern(tagged(image.Reference)))
		}
	}
	return slices.Clip(all)
}

func tagged(image string) string {
	if strings.LastIndex(image, ":") <= strings.LastIndex(image, "/") {
		return image + ":latest"
	}
	return image
}
