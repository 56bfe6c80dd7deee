package nodetable

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/node/topology"
)

// Node is the immutable digest of a node.
type Node struct {
	// Object is used for devices, volumes and out-of-tree plugins. For a digest of Templates
	// it has what nodes of a machine type have in common: see OwnObject.
	Object *v1.Node
	Name   Symbol
	UID    types.UID
	// Zone is region and zone; empty: the node has neither.
	Zone Symbol
	// CPU in millicores, Memory and Ephemeral in bytes, Pods as a number.
	CPU, Memory, Ephemeral, Pods int64
	Extended                     []Amount
	Labels                       Labels
	Taints                       []Taint
	Unschedulable                bool
	Images                       []Image
	Conditions                   []Condition

	template *nodeTemplate // nil: the object is that of the node
}

// Condition of a node without its message. Since is the last transition; zero: unknown.
type Condition struct {
	Type   v1.NodeConditionType
	Status v1.ConditionStatus
	Since  time.Time
}

// Image is an image name on a node with its size in bytes.
type Image struct {
	Name Symbol
	Size int64
}

// allocatable is below MaxAmount: a request of MaxAmount fits no node.
func allocatable(q *resource.Quantity, scale resource.Scale) int64 {
	return min(amount(q, scale), MaxAmount-1)
}

// NewNode digests a node. Any goroutine may call it.
func NewNode(node *v1.Node) *Node {
	a := node.Status.Allocatable
	n := &Node{
		Object: node, Name: Intern(node.Name), UID: node.UID, Zone: Intern(topology.GetZoneKey(node)),
		CPU: allocatable(a.Cpu(), resource.Milli), Memory: allocatable(a.Memory(), 0), Ephemeral: allocatable(a.StorageEphemeral(), 0), Pods: allocatable(a.Pods(), 0),
		Extended: extended(a, allocatable), Labels: NewLabels(node.Labels), Unschedulable: node.Spec.Unschedulable,
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		n.Conditions = append(n.Conditions, Condition{v1.NodeConditionType(Intern(string(c.Type)).Value()), v1.ConditionStatus(Intern(string(c.Status)).Value()), c.LastTransitionTime.Time})
	}
	for i := range node.Spec.Taints {
		n.Taints = append(n.Taints, NewTaint(&node.Spec.Taints[i]))
	}
	for _, image := range node.Status.Images {
		for _, name := range image.Names {
			n.Images = append(n.Images, Image{Intern(name), image.SizeBytes})
		}
	}
	slices.SortFunc(n.Images, func(a, b Image) int { return strings.Compare(a.Name.Value(), b.Name.Value()) })
	n.Images = slices.CompactFunc(n.Images, func(a, b Image) bool { return a.Name == b.Name })
	return n
}

// Change is the set of differences of a node.
type Change uint16

// The first seven correspond to Kubernetes' scheduling events; spec.unschedulable
// counts as a taint.
const (
	ChangedPresence Change = 1 << iota // the node was added
	ChangedAllocatable
	ChangedLabels
	ChangedTaints
	ChangedConditions
	ChangedAnnotations
	ChangedFeatures
	ChangedImages
	ChangedZone
)

// Changes are the differences of two digests of a node.
func Changes(was, is *Node) (c Change) {
	for _, part := range []struct {
		change Change
		same   bool
	}{
		{ChangedAllocatable, was.CPU == is.CPU && was.Memory == is.Memory && was.Ephemeral == is.Ephemeral && was.Pods == is.Pods && slices.Equal(was.Extended, is.Extended)},
		{ChangedLabels, slices.Equal(was.Labels, is.Labels)},
		{ChangedTaints, was.Unschedulable == is.Unschedulable && slices.Equal(was.Taints, is.Taints)},
		{ChangedConditions, maps.Equal(conditions(was), conditions(is))},
		{ChangedAnnotations, maps.Equal(was.Object.Annotations, is.Object.Annotations)},
		{ChangedFeatures, slices.Equal(was.Object.Status.DeclaredFeatures, is.Object.Status.DeclaredFeatures)},
		{ChangedImages, slices.Equal(was.Images, is.Images)},
		{ChangedZone, was.Zone == is.Zone},
	} {
		if !part.same {
			c |= part.change
		}
	}
	return c
}

func conditions(n *Node) map[v1.NodeConditionType]v1.ConditionStatus {
	statuses := make(map[v1.NodeConditionType]v1.ConditionStatus, len(n.Conditions))
	for _, c := range n.Conditions {
		statuses[c.Type] = c.Status
	}
	return statuses
}
