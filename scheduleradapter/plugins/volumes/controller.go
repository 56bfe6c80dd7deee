package volumes

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// NewSimulatedStorage makes a storage without an API server: writes of PreBind
// apply immediately.
func NewSimulatedStorage(table *nodetable.Table) *Storage {
	s := NewStorage(table, nil)
	s.api = controller{s}
	return s
}

// Reported are the volumes and claims without reservations, in no order.
func (s *Storage) Reported() (volumes []*v1.PersistentVolume, claims []*v1.PersistentVolumeClaim) {
	for _, v := range s.volumes {
		volumes = append(volumes, v.reported)
	}
	for _, c := range s.claims {
		claims = append(claims, c.reported)
	}
	return volumes, claims
}

// controller acts as the volume controller and the provisioners.
type controller struct{ *Storage }

// UpdateVolume binds the claim of the volume.
func (c controller) UpdateVolume(_ context.Context, object *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	ref := object.Spec.ClaimRef
	reported := c.Claim(ref.Namespace, ref.Name)
	if reported == nil {
		return nil, notFound("persistentvolumeclaim", ref.Name)
	}
	return c.bind(reported, object.DeepCopy()), nil
}

// UpdateClaim provisions a volume in the topology of the node's driver.
func (c controller) UpdateClaim(_ context.Context, object *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	class := c.classes[classOfClaim(object)]
	if class == nil {
		return nil, notFound("storageclass.storage.k8s.io", classOfClaim(object))
	}
	name := "pvc-" + string(object.UID)
	made := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			Capacity: object.Spec.Resources.Requests, AccessModes: object.Spec.AccessModes, VolumeMode: object.Spec.VolumeMode,
			StorageClassName: class.object.Name, VolumeAttributesClassName: object.Spec.VolumeAttributesClassName,
			ClaimRef:               &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: object.Namespace, Name: object.Name, UID: object.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: class.driver.Value(), VolumeHandle: name}},
			NodeAffinity:           c.topologyOf(nodetable.Intern(object.Annotations[selectedNode]), class.driver.Value()),
		},
	}
	c.bind(object, made)
	return object, nil
}

// topologyOf is the topology segment of a node by its driver; nil: the whole
// cluster.
func (c controller) topologyOf(name nodetable.Symbol, driver string) *v1.VolumeNodeAffinity {
	csi, row := c.nodes[name], c.table.Row(name)
	if csi == nil || row == nodetable.NoRow {
		return nil
	}
	var term v1.NodeSelectorTerm
	for _, d := range csi.Spec.Drivers {
		for _, key := range d.TopologyKeys {
			if value, found := c.table.Node(row).Labels.Get(nodetable.Intern(key)); found && d.Name == driver {
				term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value.Value()}})
			}
		}
	}
	if term.MatchExpressions == nil {
		return nil
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}}
}

// bind completes the binding of a claim and a volume.
func (c controller) bind(reported *v1.PersistentVolumeClaim, volume *v1.PersistentVolume) *v1.PersistentVolume {
	volume.ResourceVersion, volume.Status.Phase = "", v1.VolumeBound
	bound := reported.DeepCopy()
	bound.ResourceVersion, bound.Status.Phase, bound.Spec.VolumeName = "", v1.ClaimBound, volume.Name
	metav1.SetMetaDataAnnotation(&bound.ObjectMeta, bindCompleted, "yes")
	c.SetClaim(bound)
	c.SetVolume(volume)
	return volume
}

// Await calls done once.
func (c controller) Await(_ context.Context, _ time.Duration, done func(View) (bool, error)) error {
	bound, err := done(c)
	if err == nil && !bound {
		err = errors.New("a claim is not bound")
	}
	return err
}

func (c controller) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	if found := c.claims[nodetable.ClaimKey(namespace, name)]; found != nil {
		return found.reported
	}
	return nil
}

func (c controller) Volume(name string) *v1.PersistentVolume {
	if found := c.volumes[name]; found != nil {
		return found.reported
	}
	return nil
}
