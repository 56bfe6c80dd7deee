package volumes

import (
	"context"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// API writes the decisions and waits for the volume controllers. Any goroutine may
// call it.
type API interface {
	// UpdateVolume and UpdateClaim return the stored object.
	UpdateVolume(ctx context.Context, object *v1.PersistentVolume) (*v1.PersistentVolume, error)
	UpdateClaim(ctx context.Context, object *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error)
	// Await calls done with the informers' view, again after changes, until it
	// returns true or an error, or the timeout ends.
	Await(ctx context.Context, timeout time.Duration, done func(View) (bool, error)) error
}

// View is the informers' view; nil: there is no such object.
type View interface {
	Claim(namespace, name string) *v1.PersistentVolumeClaim
	Volume(name string) *v1.PersistentVolume
}

// plan is what PreBind writes for a pod.
type plan struct {
	node     *nodetable.Node
	drivers  *storagev1.CSINode // nil: unknown
	bindings []binding
	// made are claims to provision.
	made []*v1.PersistentVolumeClaim
}

// binding is a volume with its claim.
type binding struct {
	volume *v1.PersistentVolume
	claim  *v1.PersistentVolumeClaim
}

// Reserve reserves the volumes and claims of the selected node.
func (b *Binding) Reserve(a framework.Assignment) framework.Status {
	if len(b.wants) == 0 {
		return framework.Status{}
	}
	row := b.table.Row(a.Node.Name)
	p := &plan{node: a.Node, drivers: b.nodes[a.Node.Name]}
	for _, w := range b.wants {
		if v := w.found[row]; v != nil {
			object := boundTo(v.now, w.object)
			b.reserveVolume(v, object, a.Pod.UID)
			p.bindings = append(p.bindings, binding{object, w.object})
			continue
		}
		object := madeOn(w.object, a.Node.Name.Value())
		reserveClaim(b.claims[nodetable.ClaimKey(object.Namespace, object.Name)], object, a.Pod.UID)
		p.made = append(p.made, object)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.plans[a.Pod.UID] = p
	return framework.Status{}
}

func boundTo(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	if isFor(v, c) && v.Spec.ClaimRef.UID == c.UID {
		return v
	}
	bound := v.DeepCopy()
	bound.Spec.ClaimRef = &v1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
	}
	if !isFor(v, c) {
		metav1.SetMetaDataAnnotation(&bound.ObjectMeta, boundByController, "yes")
	}
	return bound
}

func madeOn(c *v1.PersistentVolumeClaim, node string) *v1.PersistentVolumeClaim {
	if chosen, is := c.Annotations[selectedNode]; is && chosen == node {
		return c
	}
	made := c.DeepCopy()
	metav1.SetMetaDataAnnotation(&made.ObjectMeta, selectedNode, node)
	return made
}

// Unreserve releases what is not written.
func (b *Binding) Unreserve(a framework.Assignment) {
	b.withdraw(a)
	if len(a.Pod.Claims) > 0 {
		b.release(a.Pod)
	}
}

// withdraw removes a pod's plan; nil: there is none.
func (b *Binding) withdraw(a framework.Assignment) *plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.plans[a.Pod.UID]
	delete(b.plans, a.Pod.UID)
	return p
}

// PreBindPreFlight reports whether claims are to be bound.
func (b *Binding) PreBindPreFlight(a framework.Assignment) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plans[a.Pod.UID] != nil
}

// PreBind writes the plan and waits until all claims are bound.
func (b *Binding) PreBind(ctx context.Context, a framework.Assignment) framework.Status {
	p := b.withdraw(a)
	if p == nil {
		return framework.Status{}
	}
	if err := p.write(ctx, b.api); err != nil {
		return framework.AsStatus(err)
	}
	if err := b.api.Await(ctx, b.timeout, p.done); err != nil {
		return framework.AsStatus(fmt.Errorf("binding volumes: %w", err))
	}
	return framework.Status{}
}

func (p *plan) write(ctx context.Context, api API) error {
	for i := range p.bindings {
		stored, err := api.UpdateVolume(ctx, p.bindings[i].volume)
		if err != nil {
			return fmt.Errorf("bind persistent volume %s: %w", p.bindings[i].volume.Name, err)
		}
		p.bindings[i].volume = stored
	}
	for i, object := range p.made {
		stored, err := api.UpdateClaim(ctx, object)
		if err != nil {
			return fmt.Errorf("select node of persistent volume claim %s/%s: %w", object.Namespace, object.Name, err)
		}
		p.made[i] = stored
	}
	return nil
}

// done reports whether all claims are bound; an error: they will not be, and the
// pod is scheduled again.
func (p *plan) done(view View) (bool, error) {
	for _, b := range p.bindings {
		object := view.Volume(b.volume.Name)
		switch {
		case object == nil:
			return false, notFound("persistentvolume", b.volume.Name)
		case older(object, b.volume):
			return false, nil
		case object.Spec.ClaimRef == nil || object.Spec.ClaimRef.UID == "":
			return false, fmt.Errorf("ClaimRef got reset for pv %q", object.Name)
		}
		if bound, err := p.bound(view, b.claim); !bound || err != nil {
			return false, err
		}
	}
	for _, c := range p.made {
		object := view.Claim(c.Namespace, c.Name)
		switch {
		case object == nil:
			return false, notFound("persistentvolumeclaim", c.Name)
		case older(object, c):
			return false, nil
		case object.Annotations[selectedNode] != p.node.Name.Value():
			return false, fmt.Errorf("provisioning failed for PVC %q", c.Name)
		}
		if bound, err := p.bound(view, c); !bound || err != nil {
			return false, err
		}
	}
	return true, nil
}

// bound reports whether a claim is bound to a volume that the node can have.
func (p *plan) bound(view View, c *v1.PersistentVolumeClaim) (bool, error) {
	object := view.Claim(c.Namespace, c.Name)
	if object == nil {
		return false, notFound("persistentvolumeclaim", c.Name)
	}
	v := view.Volume(object.Spec.VolumeName)
	if v == nil {
		return false, nil
	}
	digest := newVolume(v)
	if affinity := digest.affinityOn(p.drivers); affinity != nil && !affinity.Matches(p.node) {
		return false, fmt.Errorf("pv %q node affinity doesn't match node %q", v.Name, p.node.Name.Value())
	}
	return isBound(object), nil
}

// older reports whether the informer's object is older than the written one.
func older(reported, written metav1.Object) bool {
	t, err := strconv.ParseUint(reported.GetResourceVersion(), 10, 64)
	w, err2 := strconv.ParseUint(written.GetResourceVersion(), 10, 64)
	return err == nil && err2 == nil && t < w
}
