package framework

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Resource of an event, by its Kubernetes name.
type Resource string

const (
	AnyResource           Resource = "*"
	PodResource           Resource = "Pod" // the next three
	AssignedPod           Resource = "AssignedPod"
	UnscheduledPod        Resource = "UnscheduledPod" // another pending pod
	TargetPod             Resource = "TargetPod"      // the pod of the hint
	NodeResource          Resource = "Node"
	PersistentVolume      Resource = "PersistentVolume"
	PersistentVolumeClaim Resource = "PersistentVolumeClaim"
	StorageClass          Resource = "storage.k8s.io/StorageClass"
	CSINode               Resource = "storage.k8s.io/CSINode"
	CSIDriver             Resource = "storage.k8s.io/CSIDriver"
	CSIStorageCapacity    Resource = "storage.k8s.io/CSIStorageCapacity"
	VolumeAttachment      Resource = "storage.k8s.io/VolumeAttachment"
	ResourceClaim         Resource = "resource.k8s.io/ResourceClaim"
	ResourceSlice         Resource = "resource.k8s.io/ResourceSlice"
	DeviceClass           Resource = "resource.k8s.io/DeviceClass"
	PodGroupResource      Resource = "scheduling.k8s.io/PodGroup"
)

// Action is a set of changes.
type Action uint32

const (
	Add Action = 1 << iota
	Delete
	UpdateNodeAllocatable
	UpdateNodeLabel
	UpdateNodeTaint // or spec.unschedulable
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

	// All are all actions, Update those that are updates.
	All    Action = actions - 1
	Update Action = All &^ (Add | Delete)
)

var actionNames = [...]string{
	"Add", "Delete", "UpdateNodeAllocatable", "UpdateNodeLabel", "UpdateNodeTaint", "UpdateNodeCondition", "UpdateNodeAnnotation",
	"UpdateNodeDeclaredFeature", "UpdatePodLabel", "UpdatePodScaleDown", "UpdatePodScaleUp", "UpdatePodToleration",
	"UpdatePodSchedulingGatesEliminated", "UpdatePodGeneratedResourceClaim",
}

// String is the Kubernetes name, joined by "|".
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

// Event is a kind of change in the cluster.
type Event struct {
	Resource Resource
	Action   Action
	// Name of an event without an object.
	Name string
}

// Events that move all pods.
var (
	ForceActivate        = Event{AnyResource, All, "ForceActivate"}
	UnschedulableTimeout = Event{AnyResource, All, "UnschedulableTimeout"}
)

// String is the event label of kube-scheduler's metrics.
func (e Event) String() string {
	if e.Name != "" {
		return e.Name
	}
	return fmt.Sprint(e.Resource, e.Action)
}

// Includes reports whether the registered event e covers an event.
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

// Occurrence is an event with its objects. The old object is nil after an addition,
// the new object after a deletion.
type Occurrence struct {
	Event
	OldPod, Pod *nodetable.Pod
	// Left is the node that a deleted, forgotten or no longer nominated pod leaves;
	// zero: not known. Overdue: the pod was an overdue victim.
	Left          nodetable.Symbol
	Overdue       bool
	OldNode, Node *nodetable.Node
	// OldObject and Object are API objects other than pods and nodes.
	OldObject, Object any
}

// Hint is the result of a queueing hint.
type Hint uint8

const (
	QueueSkip Hint = iota
	Queue
)

func (h Hint) String() string { return [...]string{"QueueSkip", "Queue"}[h] }

// EventHint registers a plugin for an event. Without a function, or if it fails,
// the event moves the pod.
type EventHint struct {
	Event Event
	Hint  func(o *Occurrence, pod *nodetable.Pod) (Hint, error)
}

// NodeEvents are the actions of a change of a node.
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

// PodEvents are the actions of a change of a pod.
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
		{UpdatePodGeneratedResourceClaim, !slices.EqualFunc(was.Object.Status.ResourceClaimStatuses, is.Object.Status.ResourceClaimStatuses, sameClaim)},
	} {
		if part.changed {
			all |= part.action
		}
	}
	return all
}

// sameClaim reports whether two statuses name the same claim.
func sameClaim(a, b v1.PodResourceClaimStatus) bool {
	return a.Name == b.Name && ptr.Equal(a.ResourceClaimName, b.ResourceClaimName)
}
