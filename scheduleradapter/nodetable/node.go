package nodetable

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"
)

// Node is the immutable digest of a node.
type Node struct {
	// Object is used for messages and out-of-tree plugins.
	Object *v1.Node
	Name   Symbol
	// Zone is region and zone; empty: the node has neither.
	Zone Symbol
	// CPU in millicores, Memory and Ephemeral in bytes, Pods as a number.
	CPU, Memory, Ephemeral, Pods int64
	Extended                     []Amount
	Labels                       Labels
	Taints                       []Taint
	Unschedulable                bool
	Images                       []Image
}

// Image is an image name on a node with its size in bytes.
type Image struct {
	Name Symbol
	Size int64
}

// NewNode digests a node. Any goroutine may call it.
func NewNode(node *v1.Node) *Node {
	a := node.Status.Allocatable
	n := &Node{
		Object: node, Name: Intern(node.Name), Zone: Intern(topology.GetZoneKey(node)),
		CPU: a.Cpu().MilliValue(), Memory: a.Memory().Value(), Ephemeral: a.StorageEphemeral().Value(), Pods: a.Pods().Value(),
		Extended: extended(a), Labels: NewLabels(node.Labels), Unschedulable: node.Spec.Unschedulable,
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
		{ChangedConditions, maps.Equal(conditions(was.Object), conditions(is.Object))},
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

func conditions(n *v1.Node) map[v1.NodeConditionType]v1.ConditionStatus {
	statuses := make(map[v1.NodeConditionType]v1.ConditionStatus, len(n.Status.Conditions))
	for i := range n.Status.Conditions {
		statuses[n.Status.Conditions[i].Type] = n.Status.Conditions[i].Status
	}
	return statuses
}
