package kube

import (
	"context"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/nodestatus"
)

const (
	leaseNamespace = "evictd-system"
	leasePrefix    = "evictd-"
	leaseSeconds   = 40
	renewInterval  = 10 * time.Second
	// headroomInterval is the shortest interval between two writes of the headroom.
	headroomInterval = time.Second
)

// loopAlive says whether evictd's loop has reported recently. If the loop hangs, its
// lease must expire.
func (p *Publisher) loopAlive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state != nil && time.Since(p.state.At.Time) < leaseSeconds*time.Second
}

// renewLease renews evictd's Lease with the headroom on it.
func (p *Publisher) renewLease(ctx context.Context) error {
	p.mu.Lock()
	wait := time.Until(p.leaseWritten.Add(headroomInterval))
	p.mu.Unlock()
	if err := sleep(ctx, wait); err != nil {
		return err
	}
	if !p.loopAlive() {
		return nil
	}
	p.mu.Lock()
	annotations := map[string]string{}
	if p.headroom.Annotation != "" {
		annotations[nodestatus.HeadroomAnnotation] = p.headroom.Annotation
	}
	p.leaseWritten = time.Now()
	p.mu.Unlock()
	return p.renew(ctx, leaseNamespace, leasePrefix+p.node.Name, annotations)
}

// renewNodeLease renews the Lease that a kubelet renews as its heartbeat.
func (p *Publisher) renewNodeLease(ctx context.Context) error {
	if !p.loopAlive() {
		return nil
	}
	return p.renew(ctx, v1.NamespaceNodeLease, p.node.Name, nil)
}

// renew patches a Lease; it creates the Lease and its namespace where they do not
// exist.
func (p *Publisher) renew(ctx context.Context, namespace, name string, annotations map[string]string) error {
	now := metav1.NowMicro()
	lease := &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, OwnerReferences: p.owner()},
		Spec:       coordination.LeaseSpec{HolderIdentity: &p.node.Name, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now},
	}
	leases := p.client.CoordinationV1().Leases(namespace)
	metadata := object{"annotations": annotations}
	if lease.OwnerReferences != nil {
		metadata["ownerReferences"] = lease.OwnerReferences
	}
	body := patch(object{"metadata": metadata, "spec": lease.Spec})
	_, err := leases.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if apierrors.IsNotFound(err) { // of the namespace
		_, err = p.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		}
	}
	p.requests.record("lease "+namespace+"/"+name, err)
	if err != nil {
		return fmt.Errorf("renew lease %s/%s: %w", namespace, name, err)
	}
	return nil
}

// owner makes the Node own the leases.
func (p *Publisher) owner() []metav1.OwnerReference {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.node.Name, UID: p.seen.UID}}
}
