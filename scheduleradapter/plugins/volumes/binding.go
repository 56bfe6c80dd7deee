package volumes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	config "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const BindingName = "VolumeBinding"

// Binding is VolumeBinding: it rejects nodes that cannot have the pod's bound
// volumes, or on which an unbound claim finds no volume and none can be
// provisioned.
type Binding struct {
	*Storage
	timeout time.Duration
	rate    func(utilization int64) int64

	bound    []*volume // volumes of bound claims; nil: the volume does not exist
	wants    []*want   // unbound claims, in the order of binding
	spare    []*want
	rejected [reasons]nodetable.Bits // by reason
	open     nodetable.Bits          // buffer
	some     nodetable.Bits          // buffer

	mu    sync.Mutex
	plans map[types.UID]*plan // reserved pods before PreBind
}

// Bits of a rejection.
const (
	affinityConflict = iota
	nothingToBind
	noSpace
	volumeGone
	reasons
)

// Annotations of claims, shared with the volume controller.
const (
	bindCompleted     = "pv.kubernetes.io/bind-completed"
	boundByController = "pv.kubernetes.io/bound-by-controller"
	selectedNode      = "volume.kubernetes.io/selected-node"
)

// noProvisioner is the provisioner of classes without dynamic provisioning.
const noProvisioner = "kubernetes.io/no-provisioner"

// NewBinding makes the plugin; args are a VolumeBindingArgs with its defaults.
func (s *Storage) NewBinding(args any, _ framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.VolumeBindingArgs)
	if !ok || a.BindTimeoutSeconds == nil || len(a.Shape) == 0 {
		return nil, fmt.Errorf("%s: arguments are %T without a timeout and a shape", BindingName, args)
	}
	return &Binding{Storage: s, timeout: time.Duration(*a.BindTimeoutSeconds) * time.Second, rate: rating(a.Shape), plans: map[types.UID]*plan{}}, nil
}

func (*Binding) Name() string { return BindingName }

// PreFilter divides the claims into bound ones, those to bind now, and those to
// wait for.
func (b *Binding) PreFilter(c *framework.Cycle) framework.Status {
	b.bound, b.spare, b.wants = b.bound[:0], append(b.spare, b.wants...), b.wants[:0]
	if len(c.Pod.Claims) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	for _, used := range c.Pod.Claims {
		if err := b.usable(used, c.Pod.Object); err != nil {
			return unresolvable(err)
		}
	}
	immediate := false
	for i, used := range c.Pod.Claims {
		if slices.Contains(c.Pod.Claims[:i], used) {
			continue
		}
		object := b.claim(used.Key)
		if isBound(object) {
			b.bound = append(b.bound, b.volumes[object.Spec.VolumeName])
			continue
		}
		class := b.classes[classOfClaim(object)]
		if class != nil && class.object.VolumeBindingMode == nil {
			return framework.AsStatus(fmt.Errorf("VolumeBindingMode not set for StorageClass %q", class.object.Name))
		}
		if class == nil || !class.delays() || object.Spec.VolumeName != "" {
			immediate = true
			continue
		}
		b.want(object, class)
	}
	if immediate {
		return unresolvable(errors.New("pod has unbound immediate PersistentVolumeClaims"))
	}
	slices.SortStableFunc(b.wants, byNodeThenSize)
	return framework.Status{}
}

// usable is why a pod cannot use a claim.
func (b *Binding) usable(used nodetable.Claim, pod *v1.Pod) error {
	object := b.claim(used.Key)
	switch {
	case object == nil && used.Ephemeral:
		return fmt.Errorf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", used.Name)
	case object == nil:
		return notFound("persistentvolumeclaim", used.Name)
	case object.Status.Phase == v1.ClaimLost:
		return fmt.Errorf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", object.Name, object.Spec.VolumeName)
	case object.DeletionTimestamp != nil:
		return fmt.Errorf("persistentvolumeclaim %q is being deleted", object.Name)
	case used.Ephemeral:
		return ephemeral.VolumeIsForPod(pod, object)
	}
	return nil
}

func isBound(object *v1.PersistentVolumeClaim) bool {
	_, completed := object.Annotations[bindCompleted]
	return completed && object.Spec.VolumeName != ""
}

// byNodeThenSize sorts claims with a selected node first, then by size, so that
// each finds the smallest volume.
func byNodeThenSize(a, b *want) int {
	switch {
	case a.chosen != b.chosen:
		if a.chosen {
			return -1
		}
		return 1
	case a.chosen:
		return 0
	}
	return cmp.Compare(a.size, b.size)
}

// Filter rejects nodes without access to a bound volume, and nodes on which a claim
// has neither a volume nor provisioning.
func (b *Binding) Filter(c *framework.Cycle) framework.Status {
	for i := range b.rejected {
		b.rejected[i] = b.rejected[i].Emptied(c.Table.Rows())
	}
	b.filterBound(c)
	b.open = b.open.Copied(c.Feasible)
	for i := range b.wants {
		b.find(i)
	}
	for _, w := range b.wants {
		b.provision(w)
	}
	b.some = b.some.Emptied(c.Table.Rows())
	for _, rows := range b.rejected {
		b.some.Or(rows)
	}
	for row := range b.some.All() {
		why := uint32(0)
		for reason := range b.rejected {
			if b.rejected[reason].Has(row) {
				why |= 1 << reason
			}
		}
		c.Reject(row, why, true)
	}
	return framework.Status{}
}

// filterBound rejects a node by the first bound claim that it cannot have.
func (b *Binding) filterBound(c *framework.Cycle) {
	b.open = b.open.Copied(c.Feasible)
	for _, v := range b.bound {
		if v == nil {
			b.rejected[volumeGone].Or(b.open)
			return
		}
		reach := b.reachOf(v)
		if reach.everywhere {
			continue
		}
		b.some = b.some.Emptied(c.Table.Rows())
		b.some.SetAll(reach.rows)
		b.rejectOthers(affinityConflict, b.some)
	}
}

// rejectOthers rejects the open nodes that are not in a set.
func (b *Binding) rejectOthers(reason int, but nodetable.Bits) {
	for row := range b.open.All() {
		if !but.Has(row) {
			b.rejected[reason].Set(row)
		}
	}
	b.open.And(but)
}

// Reasons lists all reasons.
func (*Binding) Reasons(_ *nodetable.Pod, why uint32) []string {
	var texts []string
	for reason, text := range [reasons]string{
		affinityConflict: "node(s) didn't match PersistentVolume's node affinity",
		nothingToBind:    "node(s) didn't find available persistent volumes to bind",
		noSpace:          "node(s) did not have enough free storage",
		volumeGone:       "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
	} {
		if why&(1<<reason) != 0 {
			texts = append(texts, text)
		}
	}
	return texts
}

// Events are those of all storage objects.
func (*Binding) Events() []framework.EventHint {
	const set = framework.Add | framework.Update
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.StorageClass, Action: set}, Hint: changed(func(was, is *storagev1.StorageClass) bool {
			return !equality.Semantic.DeepEqual(was.AllowedTopologies, is.AllowedTopologies)
		})},
		{Event: framework.Event{Resource: framework.PersistentVolumeClaim, Action: set}, Hint: claimChanged(true)},
		{Event: framework.Event{Resource: framework.PersistentVolume, Action: set}},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeLabel}},
		{Event: framework.Event{Resource: framework.CSINode, Action: set}, Hint: changed(func(was, is *storagev1.CSINode) bool {
			return was.Annotations[v1.MigratedPluginsAnnotationKey] != is.Annotations[v1.MigratedPluginsAnnotationKey]
		})},
		// The driver's storage capacity is no longer tracked.
		{Event: framework.Event{Resource: framework.CSIDriver, Action: framework.Update}, Hint: changed(func(was, is *storagev1.CSIDriver) bool {
			return ptr.Deref(was.Spec.StorageCapacity, false) && !ptr.Deref(is.Spec.StorageCapacity, false)
		})},
		{Event: framework.Event{Resource: framework.CSIStorageCapacity, Action: set}, Hint: changed(func(was, is *storagev1.CSIStorageCapacity) bool {
			_, largest := amounts(was)
			_, larger := amounts(is)
			return larger > largest
		})},
	}
}

// changed makes a hint that returns Queue for a new object, and for an update if
// helps returns true.
func changed[T any](helps func(was, is *T) bool) func(*framework.Occurrence, *nodetable.Pod) (framework.Hint, error) {
	return func(o *framework.Occurrence, _ *nodetable.Pod) (framework.Hint, error) {
		was, err := before[*T](o)
		if err != nil {
			return framework.Queue, err
		}
		is, err := now[*T](o)
		if err != nil {
			return framework.Queue, err
		}
		return queueIf(was == nil || helps(was, is))
	}
}
