package framework

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Resource is what a cluster event is about, by Kubernetes' names.
type Resource string

const (
	AnyResource           Resource = "*"
	PodResource           Resource = "Pod" // all three below
	AssignedPod           Resource = "AssignedPod"
	UnscheduledPod        Resource = "UnscheduledPod" // another one than the pod asked about
	TargetPod             Resource = "TargetPod"      // the pod itself
	NodeResource          Resource = "Node"
	PersistentVolume      Resource = "PersistentVolume"
	PersistentVolumeClaim Resource = "PersistentVolumeClaim"
	StorageClass          Resource = "storage.k8s.io/StorageClass"
	CSINode               Resource = "storage.k8s.io/CSINode"
	CSIDriver             Resource = "storage.k8s.io/CSIDriver"
	CSIStorageCapacity    Resource = "storage.k8s.io/CSIStorageCapacity"
	VolumeAttachment      Resource = "storage.k8s.io/VolumeAttachment"
)

// Action is what happened, as bits.
type Action uint32

const (
	Add Action = 1 << iota
	Delete
	UpdateNodeAllocatable
	UpdateNodeLabel
	UpdateNodeTaint // or its unschedulable flag
	UpdateNodeCondition
	UpdateNodeAnnotation
	UpdateNodeDeclaredFeature
	UpdatePodLabel
	UpdatePodScaleDown
	UpdatePodScaleUp
	UpdatePodToleration
	UpdatePodSchedulingGatesEliminated
	UpdatePodGeneratedResourceClaim
	actions

	// All actions, and those that are updates.
	All    Action = actions - 1
	Update Action = All &^ (Add | Delete)
)

var actionNames = [...]string{
	"Add", "Delete", "UpdateNodeAllocatable", "UpdateNodeLabel", "UpdateNodeTaint", "UpdateNodeCondition", "UpdateNodeAnnotation",
	"UpdateNodeDeclaredFeature", "UpdatePodLabel", "UpdatePodScaleDown", "UpdatePodScaleUp", "UpdatePodToleration",
	"UpdatePodSchedulingGatesEliminated", "UpdatePodGeneratedResourceClaim",
}

// String is Kubernetes' name of an action, or those of several joined by "|".
func (a Action) String() string {
	switch a {
	case All:
		return "All"
	case Update:
		return "Update"
	}
	var names []string
	for i, name := range actionNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// Event is a kind of change in the cluster that may let a pod fit.
type Event struct {
	Resource Resource
	Action   Action
	// Name of an event that is about no object.
	Name string
}

// The events that move every pod, whatever rejected it, and the periodic flush.
var (
	ForceActivate        = Event{AnyResource, All, "ForceActivate"}
	UnschedulableTimeout = Event{AnyResource, All, "UnschedulableTimeout"}
)

// String is the label Kubernetes' metrics give the event.
func (e Event) String() string {
	if e.Name != "" {
		return e.Name
	}
	return fmt.Sprint(e.Resource, e.Action)
}

// Includes says whether an event that happened is of this kind.
func (e Event) Includes(happened Event) bool {
	if happened.Action&e.Action == 0 {
		return false
	}
	switch e.Resource {
	case AnyResource, happened.Resource:
		return true
	case PodResource:
		return happened.Resource == AssignedPod || happened.Resource == UnscheduledPod || happened.Resource == TargetPod
	}
	return false
}

// Occurrence is an event with the objects it is about: the old one is nil where
// something was added, the new one where it is gone.
type Occurrence struct {
	Event
	OldPod, Pod   *nodetable.Pod
	OldNode, Node *nodetable.Node
	// OldObject and Object are those of other resources, as the API gives them.
	OldObject, Object any
}

// Hint says whether an event may let a pod fit that the plugin has rejected.
type Hint uint8

const (
	QueueSkip Hint = iota
	Queue
)

// String is Kubernetes' name of a hint.
func (h Hint) String() string { return [...]string{"QueueSkip", "Queue"}[h] }

// EventHint asks to be told of an event. Without a function every such event
// queues the pod; an error does too.
type EventHint struct {
	Event Event
	Hint  func(o *Occurrence, pod *nodetable.Pod) (Hint, error)
}

// NodeEvents are the events that a change of a node stands for.
func NodeEvents(c nodetable.Change) Action {
	actions := [...]struct {
		change nodetable.Change
		action Action
	}{
		{nodetable.ChangedPresence, Add},
		{nodetable.ChangedAllocatable, UpdateNodeAllocatable},
		{nodetable.ChangedLabels, UpdateNodeLabel},
		{nodetable.ChangedTaints, UpdateNodeTaint},
		{nodetable.ChangedConditions, UpdateNodeCondition},
		{nodetable.ChangedAnnotations, UpdateNodeAnnotation},
		{nodetable.ChangedFeatures, UpdateNodeDeclaredFeature},
	}
	var all Action
	for _, a := range actions {
		if c&a.change != 0 {
			all |= a.action
		}
	}
	return all
}

// PodEvents are the events that a change of a pod stands for.
func PodEvents(was, is *nodetable.Pod) (all Action) {
	smaller, larger := is.Requests.Against(&was.Requests)
	for _, part := range [...]struct {
		action  Action
		changed bool
	}{
		{UpdatePodLabel, !slices.Equal(was.Labels, is.Labels)},
		{UpdatePodScaleDown, smaller},
		{UpdatePodScaleUp, larger},
		{UpdatePodToleration, was.Tolerations.Key != is.Tolerations.Key},
		{UpdatePodSchedulingGatesEliminated, len(was.Object.Spec.SchedulingGates) > 0 && len(is.Object.Spec.SchedulingGates) == 0},
	} {
		if part.changed {
			all |= part.action
		}
	}
	return all
}
